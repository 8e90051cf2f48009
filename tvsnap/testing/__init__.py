"""Conformance suites for backends and environments of other packages; they are run by pytest.

A test file derives a class from `BackendConformance` or `EnvironmentConformance`, says what is to be tested, and
inherits the tests. They make real sandboxes of a real image, and remove all that they make.
"""

from tvsnap.testing.backends import BackendConformance
from tvsnap.testing.environments import EnvironmentConformance

__all__ = ["BackendConformance", "EnvironmentConformance"]
