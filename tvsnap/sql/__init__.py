"""The environments `sqlite`, `postgres` and `mariadb`: a database session a rollout, beside the terminal's tools.

They plug in through the entry points that other packages use: `environment.py` holds the environments, which tell by
the words of a statement what it does (`statements.py`); `databases/` loads databases into images; and `inside/` runs in
sandboxes, packed by `program.py`.
"""
