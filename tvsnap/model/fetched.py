"""Files and folders that a call of `get` has copied out of a sandbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tvsnap.model.calls import ToolResult


class Fetched(ABC):
    """The file or folder that a `get` call has fetched. Its methods block for as long as a disk or a server does.

    Attributes:
        result: the result of the call.
        digest: that of the content; None if nothing was fetched.
        kind: `file` or `directory`; None if nothing was fetched.
    """

    def __init__(self, result: ToolResult, digest: str | None, kind: str | None) -> None:
        self.result = result
        self.digest = digest
        self.kind = kind

    @abstractmethod
    def read(self) -> bytes:
        """Returns the contents of a file.

        Raises:
            OSError: nothing was fetched, or a folder.
            InfrastructureError: it is not in the data directory any more.
        """

    @abstractmethod
    def extract(self, destination: str | Path) -> tuple[str, ...]:
        """Writes it to this machine; see `Sandbox.get`.

        Args:
            destination: the path of the file or folder to write.

        Returns:
            The entries that were left out, each a path in the folder with the reason.

        Raises:
            OSError: nothing was fetched, or it cannot be written.
            InfrastructureError: it is not in the data directory any more.
        """
