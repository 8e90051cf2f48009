"""SQLite in the session's own process: databases are files."""
