"""What the claims about equilibrium propagation share: typed records, one recipe, the shape of a finding."""
