"""The environments `sqlite`, `postgres` and `mariadb`: a database session per rollout, besides the terminal's tools.

They are registered by entry points, as other packages' environments are. `environment.py` contains the environments,
which determine what a statement does from its words (`statements.py`); `databases/` loads databases into images; and
`inside/` runs in sandboxes, packed by `program.py`.
"""
