"""What chat apps export, and what a browser or a proxy captured of their traffic."""
