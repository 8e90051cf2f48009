"""SWE-ReX's deployment and runtime on tvsnap: `tvsnap.integrations.swe_rex.TvsnapDeployment(image="terminal")`.

A deployment is one rollout. Its session is the tool `bash`, and programs beside it the tool `exec`: recorded, and
answered if possible.
"""

from tvsnap.plugins.harnesses.swe_rex.deployment import TvsnapDeployment, TvsnapDeploymentConfig
from tvsnap.plugins.harnesses.swe_rex.runtime import TvsnapRuntime

__all__ = ["TvsnapDeployment", "TvsnapDeploymentConfig", "TvsnapRuntime"]
