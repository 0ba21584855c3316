"""Finished cells on disk or a shared store: written at once, claimed by one driver, checked when read."""
