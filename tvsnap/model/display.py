"""What notebooks show of values: Jupyter asks a value for HTML by a method of a fixed name."""

from __future__ import annotations

import importlib


class Displayed:
    """Has `_repr_html_`, which Jupyter and other notebooks look for.

    What it returns is made by the command line's package, which draws trees and reports. That package is above all
    others, so it is found by its name when something is shown, and not imported before.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: HTML that is complete by itself, with all texts escaped."""
        return str(importlib.import_module("tvsnap_cli.notebooks").html(self))
