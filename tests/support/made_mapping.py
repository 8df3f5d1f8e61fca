"""A mapping."""

from __future__ import annotations

MAPPING = """\
name: mine
messages:
  path: $.lines[*]
  role:
    path: $.by
    values: {u: user, a: assistant}
  content: $.t
"""
