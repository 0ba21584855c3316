"""Models with an exact symmetry, operators that break it in a known place, and the judge of what an audit says."""
