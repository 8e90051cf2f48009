"""Where Harbor is missing, the message says how to get it."""

from __future__ import annotations

import importlib
import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("harbor") is not None, reason="Harbor is installed in this environment")
def test_where_harbor_is_missing_the_message_says_how_to_get_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"needs Harbor.*pip install 'tvsnap\[harbor\]' with Python 3.12"):
        importlib.import_module("tvsnap.integrations.harbor")
