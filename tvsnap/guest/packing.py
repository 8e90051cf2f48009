"""Packs a program that runs inside sandboxes into one file, which an image's Python runs: `python3 PROGRAM ...`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_TIME = (1980, 1, 1, 0, 0, 0)


def packed(folder: Path, package: str) -> bytes:
    """Returns a zip archive of a folder of Python sources, the same bytes for the same sources.

    Args:
        folder: a package whose module `__main__` has the function `main`, which returns an exit status.
        package: the package's name in the archive.
    """
    main = f"import sys\nfrom {package}.__main__ import main\nsys.exit(main())\n"
    files = {f"{package}/{path.relative_to(folder)}": path.read_bytes() for path in sorted(folder.rglob("*.py"))}
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w") as archive:
        for name, content in {**files, "__main__.py": main.encode()}.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return archived.getvalue()
