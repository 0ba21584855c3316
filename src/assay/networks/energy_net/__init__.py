"""Any feed-forward network as an energy: its units, the links between them, and how they settle."""
