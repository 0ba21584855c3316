"""The layered energy network: model, relaxation kernel, gradient, tangent, and many seeds at once."""
