"""Graphs that hosts share through a PostgreSQL database."""
