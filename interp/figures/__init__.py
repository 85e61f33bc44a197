"""What a figure says, and how it is drawn."""
