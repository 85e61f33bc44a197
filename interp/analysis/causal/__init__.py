"""What happens when a part is replaced."""
