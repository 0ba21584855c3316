"""Claims about what a gradient costs: memory and time."""
