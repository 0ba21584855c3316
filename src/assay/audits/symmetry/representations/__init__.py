"""How a group acts on a tensor."""
