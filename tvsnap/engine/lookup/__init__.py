"""The position of a rollout, and the answers to its calls there."""
