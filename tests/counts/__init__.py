"""What calls, observations, checkpoints and the like cost, in counts that no load of the machine changes.

`budgets.json` says how much each may cost. `make budgets` measures, and writes it anew.
"""
