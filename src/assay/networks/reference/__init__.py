"""The oracle: plain NumPy relaxations that share no code with what they judge."""
