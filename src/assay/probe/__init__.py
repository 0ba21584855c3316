"""Looking into a user's model without changing it: where its blocks, its stream and its samples are."""
