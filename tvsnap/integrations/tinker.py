"""Tinker Cookbook's sandbox on tvsnap."""

from tvsnap.plugins.harnesses.tinker import TvsnapSandbox, sandbox_factory

__all__ = ["TvsnapSandbox", "sandbox_factory"]
