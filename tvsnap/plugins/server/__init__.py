"""The HTTP server: rollouts, states, images and reports of one data directory for clients elsewhere."""
