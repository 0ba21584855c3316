"""One file per claim. Every module of this package is imported by the registry; one that cannot be is an ERROR."""
