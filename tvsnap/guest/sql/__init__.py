"""The SQL session of a sandbox: runs inside, with the image's own Python (3.9 or newer) and drivers.

Nothing here imports tvsnap: the folder is packed and carried into the sandbox as it is. `session.py` answers requests
on a Unix socket and keeps the one session that a rollout has; `postgres.py`, `mariadb.py` and `sqlite.py` know one
engine each.
"""
