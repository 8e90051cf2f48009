"""The experiment: `python -m tvsnap.training.experiment`."""

from tvsnap.plugins.training.experiment import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
