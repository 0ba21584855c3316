"""Claims about relaxation: stability, divergence, healing, how far a signal travels."""
