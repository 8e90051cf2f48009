"""A differential fuzzer of the promise that a hit may change how long a rollout takes, never what it sees."""
