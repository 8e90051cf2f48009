"""PostgreSQL: its server, the session's connection, and the server's facts about both."""
