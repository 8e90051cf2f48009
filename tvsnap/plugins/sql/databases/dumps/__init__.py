"""Dumps of MySQL: adapted to MariaDB, and translated for PostgreSQL and SQLite as far as sqlglot can."""

from tvsnap.plugins.sql.databases.dumps.reading import Read, looks_like_mysql, read_mysql
from tvsnap.plugins.sql.databases.dumps.splitting import DumpError

__all__ = ["DumpError", "Read", "looks_like_mysql", "read_mysql"]
