"""How heads work together."""
