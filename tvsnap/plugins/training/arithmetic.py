"""Has equal rows of a batch come out equal: PyTorch multiplies by MKL, which by default sums as numbers lie in memory.

On some processors, a product's last bits then depend on the place of its row. `MKL_CBWR` asks MKL for one order of
sums. It is read once, before the first product, so that importing `tvsnap.training` sets it.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

VARIABLE = "MKL_CBWR"
_ANY_ORDER = 1  # MKL_CBWR_BRANCH_OFF
_ALL = -1  # MKL_CBWR_ALL


def ask_for_one_order() -> None:
    """Sets what MKL reads, where it is not set."""
    os.environ.setdefault(VARIABLE, "AUTO")


def warn_if_too_late() -> None:
    """Warns if MKL sums as numbers lie in memory, because it was used before it was asked.

    It is to be called by what loads a model, once PyTorch is loaded.
    """
    if _order() == _ANY_ORDER:
        warnings.warn(
            f"what a model computes may depend on what else is in its batch: PyTorch has multiplied before {VARIABLE} "
            f"was set; import tvsnap.training before anything is computed, or set {VARIABLE}=AUTO in the environment",
            RuntimeWarning,
            stacklevel=3,
        )


def _order() -> int | None:
    """Returns what MKL says of the order of its sums; None where PyTorch has no MKL that can be asked."""
    import torch

    for library in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        mkl = ctypes.CDLL(str(library))
        for name in ("mkl_serv_cbwr_get", "MKL_CBWR_Get"):  # linked statically, or as a library of its own
            if hasattr(mkl, name):
                return int(getattr(mkl, name)(_ALL))
    return None
