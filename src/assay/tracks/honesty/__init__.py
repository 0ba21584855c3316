"""The claim that a wrong result is told from a right one; ``faults/`` are the planted ones."""
