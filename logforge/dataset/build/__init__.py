"""The build: its stages in their order, from chosen episodes to a published folder."""
