"""Training of agents through tvsnap (`pip install 'tvsnap[train]'`): tasks, rollouts of a model, and LOOP.

It rests on what `tvsnap` exports. `tvsnap.training.tasks` needs nothing else; the rest needs PyTorch.
"""
