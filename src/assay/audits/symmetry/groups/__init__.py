"""Groups and their elements: what acts."""
