"""Where a rollout stands, and what answers its calls there."""
