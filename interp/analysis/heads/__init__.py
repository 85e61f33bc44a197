"""What heads look at, what they are named, how they form."""
