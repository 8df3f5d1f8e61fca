"""Where the packages are: `logforge`, and the top-level folders `schemas` and `connectors`, which install inside it.

Everything else is in pyproject.toml. Packages are found here, so that a new folder is never missing from the wheel.
"""

from setuptools import find_packages, setup

INSIDE = ("schemas", "connectors")

setup(
    packages=[
        *find_packages(include=["logforge", "logforge.*"]),
        *(f"logforge.{name}" for top in INSIDE for name in find_packages(include=[top, f"{top}.*"])),
    ],
    package_dir={f"logforge.{top}": top for top in INSIDE},
)
