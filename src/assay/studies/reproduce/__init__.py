"""Published experiments run again: the same recipe, every figure beside the published one with its interval."""
