"""A local viewer over a folder of runs: list, open, compare, trends, live progress. It only reads, and only there."""
