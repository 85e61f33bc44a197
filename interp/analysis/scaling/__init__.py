"""What the scale of attention scores does."""
