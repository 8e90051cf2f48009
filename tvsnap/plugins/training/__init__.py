"""Training of agents through tvsnap (`pip install 'tvsnap[train]'`): tasks, rollouts of a model, and LOOP.

It rests on what `tvsnap` exports. `tvsnap.training.tasks` needs nothing else; the rest needs PyTorch.

Importing it asks MKL for sums whose order does not depend on where numbers lie in memory (`MKL_CBWR`), unless the
environment says something of this: what is drawn from a model must not depend on what else is generated.
"""

from __future__ import annotations

from tvsnap.plugins.training import arithmetic

arithmetic.ask_for_one_order()
