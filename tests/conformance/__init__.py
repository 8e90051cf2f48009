"""What every backend must do, written against `tvsnap.sandboxes.protocol`.

A new backend joins with one entry in `targets.py`. Tests marked `needs_processes` need snapshots of live processes.
"""
