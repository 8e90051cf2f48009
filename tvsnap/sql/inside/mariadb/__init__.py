"""MariaDB: its server, the session's connection, and what the server says of both."""
