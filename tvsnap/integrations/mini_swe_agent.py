"""mini-swe-agent's environment on tvsnap."""

from tvsnap.plugins.harnesses.mini_swe_agent import TvsnapEnvironment, TvsnapEnvironmentConfig

__all__ = ["TvsnapEnvironment", "TvsnapEnvironmentConfig"]
