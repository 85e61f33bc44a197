"""Results to figures and to one HTML file. Nothing here computes."""
