"""Tables with a row a step."""
