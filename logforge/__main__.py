"""`python -m logforge`."""

from logforge.cli import main

main()
