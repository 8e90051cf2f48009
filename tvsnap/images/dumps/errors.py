"""Why a dump cannot be converted."""

from __future__ import annotations

from tvsnap.model.errors import UsageError


class DumpError(UsageError):
    """A dump that cannot be read or converted; the message names the file, the line and the way out."""
