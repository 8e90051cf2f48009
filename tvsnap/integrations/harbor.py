"""Harbor's environment on tvsnap: `tvsnap.integrations.harbor:TvsnapEnvironment`."""

from tvsnap.plugins.harnesses.harbor import TvsnapEnvironment, TvsnapOptions

__all__ = ["TvsnapEnvironment", "TvsnapOptions"]
