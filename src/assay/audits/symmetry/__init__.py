"""symmetry."""
