"""Activations on disk."""
