"""Harbor's environment on tvsnap: `harbor run --environment-import-path tvsnap.integrations.harbor:TvsnapEnvironment`.

Everything that Harbor requests from a trial's environment is a call of one rollout: recorded, and answered if possible.
"""

from tvsnap.plugins.harnesses.harbor.environment import TvsnapEnvironment
from tvsnap.plugins.harnesses.harbor.options import TvsnapOptions

__all__ = ["TvsnapEnvironment", "TvsnapOptions"]
