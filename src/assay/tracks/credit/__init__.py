"""Claims about feedback alignment in residual networks, and what the trainings they share measure."""
