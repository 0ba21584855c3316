"""Feed-forward networks of the published feedback-alignment protocol."""
