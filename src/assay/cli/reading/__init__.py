"""Commands that read results: render, compare and check runs that exist."""
