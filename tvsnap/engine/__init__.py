"""The machine behind a rollout: what answers a call, what executes it, and what is kept of it.

In the order of a call: `lookup`, `claims`, `supply`, `execution`, `conclusion`, `keeping`."""
