"""Makes answered calls again and compares the results, to find wrong answers."""
