"""SWE-ReX's deployment and runtime on tvsnap."""

from tvsnap.plugins.harnesses.swe_rex import TvsnapDeployment, TvsnapDeploymentConfig, TvsnapRuntime

__all__ = ["TvsnapDeployment", "TvsnapDeploymentConfig", "TvsnapRuntime"]
