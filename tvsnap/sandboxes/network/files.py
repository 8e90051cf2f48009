"""The files by which programs in a sandbox find their way out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tvsnap.model.calls import canonical_json
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.network import RELAY_ADDRESS
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Sandbox

CERTIFICATES = "/etc/tvsnap-certificates.pem"
_VARIABLES = (
    "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "UV_NATIVE_TLS",
)  # fmt: skip
_NAMES = f"rm -rf /etc/resolv.conf && printf 'nameserver {RELAY_ADDRESS}\\n' > /etc/resolv.conf"
_TIMEOUT = 60.0


def variables(settings: NetworkSettings) -> Mapping[str, str]:
    """Returns the environment variables by which programs find certificates that are handed in."""
    if settings.certificates is None:
        return {}
    return {name: "1" if name == "UV_NATIVE_TLS" else CERTIFICATES for name in _VARIABLES}


def identity(settings: NetworkSettings) -> str:
    """Returns what of the settings decides what a sandbox finds, as a text that is part of a root's name.

    Where a server of the host's own runs, and through which proxy the others are reached, is not: the same names are to
    lead to the same servers.

    Args:
        settings: what the host lends; where that is nothing, the text is empty.

    Raises:
        InfrastructureError: the certificates cannot be read.
    """
    certificates = None if settings.certificates is None else hashlib.sha256(_read(settings)).hexdigest()
    lent = {"certificates": certificates, "hosts": sorted(settings.hosts)}
    if not any(lent.values()):
        return ""
    return f"; lent {hashlib.sha256(canonical_json(lent).encode()).hexdigest()}"


def prepare(sandbox: Sandbox, settings: NetworkSettings) -> None:
    """Writes these files in a sandbox that is to have a way out.

    Raises:
        InfrastructureError: that failed.
    """
    outcome = sandbox.exec(_NAMES, timeout=_TIMEOUT, cwd="/", user="root")
    if outcome.exit_code != 0:
        said = outcome.output.decode(errors="replace").strip()
        raise InfrastructureError(f"/etc/resolv.conf of {sandbox.image.name} cannot be written: {said}")
    for service in sandbox.image.services.names[1:]:
        sandbox.write_file("/etc/resolv.conf", f"nameserver {RELAY_ADDRESS}\n".encode(), user="root", service=service)
    if settings.certificates is not None:
        for name in sandbox.image.services.names:
            sandbox.write_file(CERTIFICATES, _read(settings), user="root", service=name)


def _read(settings: NetworkSettings) -> bytes:
    assert settings.certificates is not None
    try:
        return settings.certificates.read_bytes()
    except OSError as error:
        raise InfrastructureError(f"{settings.certificates} cannot be read: {error.strerror}") from None
