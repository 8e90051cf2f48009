"""The awaitable twins of `Cache`, `Rollout`, `Sandbox` and `ImageStore`: a hit never leaves the event loop."""
