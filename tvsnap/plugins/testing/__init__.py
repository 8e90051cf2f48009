"""Conformance suites for backends and environments of other packages; they are run by pytest.

A test file derives a class from `BackendConformance` or `EnvironmentConformance`, names the object of the tests, and
inherits these. They make real sandboxes of a real image, and remove everything afterwards.
"""

from tvsnap.plugins.testing.backends import BackendConformance
from tvsnap.plugins.testing.environments import EnvironmentConformance

__all__ = ["BackendConformance", "EnvironmentConformance"]
