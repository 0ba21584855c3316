"""Commands that compare learning rules: bench, tune, reproduce, and the datasets they need."""
