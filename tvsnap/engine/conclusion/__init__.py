"""What a call led to, and its record."""
