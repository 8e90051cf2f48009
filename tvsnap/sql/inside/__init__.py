"""The SQL session of a sandbox: runs inside, with the image's own Python (3.9 or newer) and drivers.

Nothing here imports anything else of tvsnap: the folder is packed and carried into the sandbox as it is. `session.py`
answers requests on a Unix socket and keeps the one session that a rollout has; `system.py` says what a database system
(a system, for short) has to do for that, and each folder knows one: `sqlite`, `postgres`, `mariadb`.
"""
