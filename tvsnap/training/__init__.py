"""Training of agents through tvsnap (`tvsnap[train]`): tasks, rollouts of a model, and LOOP."""

import tvsnap.plugins.training  # noqa: F401  # it asks for sums in one order, before anything is computed
