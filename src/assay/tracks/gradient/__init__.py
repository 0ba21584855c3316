"""Claims about the gradient itself: kernels against a reference, estimators against the true one."""
