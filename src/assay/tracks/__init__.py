"""One file per claim, in rooms by what the claim is about.

The registry imports every module of every room; one that cannot be imported is an ERROR. ``shared/`` is what claims
about equilibrium propagation have in common.
"""
