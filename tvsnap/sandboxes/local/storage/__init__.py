"""The disk below the local backend: copies of layers, the pool that holds them, its size."""
