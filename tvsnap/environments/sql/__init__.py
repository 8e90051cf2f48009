"""The environments `sqlite`, `postgres` and `mariadb`: a database session a rollout, beside the terminal's tools."""

from tvsnap.environments.sql.environment import Engine, SqlEnvironment

__all__ = ["Engine", "SqlEnvironment"]
