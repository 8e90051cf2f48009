"""Groups of rollouts that answer questions about videos, over epochs, without the cache and with it."""
