"""The page itself: sections, charts, style."""
