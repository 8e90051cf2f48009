"""Values for people: texts for `print`, and HTML for notebooks."""

from __future__ import annotations

import importlib

from tvsnap.model.errors import TvsnapError


class Displayed:
    """Has `__str__`, for `print`, and `_repr_html_`, for Jupyter and other notebooks.

    The command line's package, which draws trees and reports, makes the texts. That package is above all others, so it
    is loaded by its name when something is shown, and not imported before.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Returns HTML for a notebook, complete by itself, with all texts escaped."""
        return str(importlib.import_module("tvsnap_cli.notebooks").html(self))

    def __str__(self) -> str:
        """Returns some lines of text; or the result of `repr` if the package is missing."""
        try:
            return str(importlib.import_module("tvsnap_cli.notebooks").text(self))
        except TvsnapError:
            return repr(self)
