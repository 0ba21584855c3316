"""Which module breaks a symmetry first."""
