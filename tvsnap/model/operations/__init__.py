"""The operations of rollouts and of caches as values, and the methods that make them."""
