"""What a part wrote, directly."""
