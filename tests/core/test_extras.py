import subprocess
import sys

import pytest

from logforge.core import extras as optional
from logforge.schemas.errors import MissingExtra


def test_what_is_installed_is_imported():
    assert optional.need("json", "train") is __import__("json")


def test_what_is_missing_is_asked_for_by_its_pip_command():
    with pytest.raises(MissingExtra, match=r'pip install "logforge-rl\[train\]"') as caught:
        optional.need("no_such_library.part", "train")
    assert (caught.value.need, caught.value.extra, caught.value.exit_code) == ("no_such_library", "train", 3)


def test_a_library_that_lacks_its_own_parts_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        optional.need("broken_library", "train")


def test_d3rlpy_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "d3rlpy", None)
    optional.import_d3rlpy.cache_clear()
    with pytest.raises(MissingExtra, match="d3rlpy"):
        optional.import_d3rlpy()
    optional.import_d3rlpy.cache_clear()


def test_d3rlpy_comes_without_gyms_banner_and_logs_to_stderr():
    code = "from logforge.core.extras import import_d3rlpy; import_d3rlpy().logging.LOG.info('spoken')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "spoken" in done.stderr
    assert "unmaintained" not in done.stderr
