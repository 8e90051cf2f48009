"""What people are shown of values: by `print`, and by notebooks, which ask a value for HTML."""

from __future__ import annotations

import importlib

from tvsnap.model.errors import TvsnapError


class Displayed:
    """Has `__str__`, for `print`, and `_repr_html_`, which Jupyter and other notebooks look for.

    What they return is made by the command line's package, which draws trees and reports. That package is above all
    others, so it is found by its name when something is shown, and not imported before.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: HTML that is complete by itself, with all texts escaped."""
        return str(importlib.import_module("tvsnap_cli.notebooks").html(self))

    def __str__(self) -> str:
        """Returns what `print` shows: some lines of text; or what `repr` returns, if what they tell is not there."""
        try:
            return str(importlib.import_module("tvsnap_cli.notebooks").text(self))
        except TvsnapError:
            return repr(self)
