"""Why it breaks: causes and the words for them."""
