"""`python -m logforge`."""

from logforge.cli.commands import main

main()
