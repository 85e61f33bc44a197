"""Hand-built models whose answers are known."""
