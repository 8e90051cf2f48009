"""The SQL session of a sandbox: runs inside, with the image's own Python (3.9 or newer) and drivers.

Nothing here imports anything else of tvsnap: the folder is packed and copied into the sandbox as it is. `session.py`
answers requests on a Unix socket and keeps the one session of a rollout; `system.py` defines what a database system (a
system, for short) has to implement, and each folder implements one: `sqlite`, `postgres`, `mariadb`.
"""
