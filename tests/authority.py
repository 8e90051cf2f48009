"""An authority that issues certificates, by the program openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*words: str | Path) -> None:
    """Runs the program."""
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Authority:
    """An authority, which issues certificates.

    Attributes:
        file: its own certificate.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.file = folder, folder / "ca.pem"
        subject = ("-subj", f"/CN={folder.name}")
        openssl("req", "-x509", *CURVE, "-days", "2", *subject, "-keyout", folder / "ca.key", "-out", self.file)

    def issue(self, name: str, extension: str) -> Path:
        """Returns a file with a certificate and its key; each is alone in a file ending in .pem and .key, too."""
        key, asked, made = (self._folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(extension)
        openssl("req", *CURVE, "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
        signer = ("-CA", self.file, "-CAkey", self._folder / "ca.key", "-days", "2")
        openssl("x509", "-req", "-in", asked, *signer, "-extfile", extensions, "-out", made)
        both = self._folder / f"{name}.both"
        both.write_bytes(made.read_bytes() + key.read_bytes())
        return both
