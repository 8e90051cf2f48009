"""What is asked of rollouts and of caches: operations as values, and the methods that make them."""
