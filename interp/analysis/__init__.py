"""Analyses: inputs to frozen, self-checking results. Nothing here draws or prints."""
