"""Conformance suites for backends and environments of other packages; they are run by pytest."""

from tvsnap.plugins.testing import BackendConformance, EnvironmentConformance

__all__ = ["BackendConformance", "EnvironmentConformance"]
