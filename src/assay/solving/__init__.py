"""Fixed points: how a state relaxes, how its tangent does, and the activations both share."""
