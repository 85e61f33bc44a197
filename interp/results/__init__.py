"""What every analysis returns."""
