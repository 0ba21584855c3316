"""Cells in local worker processes that may crash, hang or be killed without taking the run along."""
