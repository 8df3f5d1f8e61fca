"""The run and the store that the tests of credit share."""

from support.made_credit import run, store  # noqa: F401
