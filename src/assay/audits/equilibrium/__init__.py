"""Audits of relaxing networks: gradient, stability, kernels, memory."""
