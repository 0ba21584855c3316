"""Commands that verify claims: write one, list them, say what one costs, run them."""
