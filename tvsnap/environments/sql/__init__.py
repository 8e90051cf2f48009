"""The environments `sqlite`, `postgres` and `mariadb`: a database session a rollout, beside the terminal's tools."""

from tvsnap.environments.sql.environment import SqlEnvironment
from tvsnap.guest.sql.lexemes import SystemName

__all__ = ["SqlEnvironment", "SystemName"]
