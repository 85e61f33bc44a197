"""Training: text sources, batches, recipes, and the loop."""
