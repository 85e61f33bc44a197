"""The model: its shape, its characters, its parts, its folder on disk."""
