"""Files and variables by which programs in a sandbox use the network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tvsnap.model.calls import canonical_json
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.network import RELAY_ADDRESS, certificate_variables
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.protocol import Sandbox

CERTIFICATES = "/etc/tvsnap-certificates.pem"
_NAMES = f"rm -rf /etc/resolv.conf && printf 'nameserver {RELAY_ADDRESS}\\n' > /etc/resolv.conf"
_TIMEOUT = 60.0


def variables(settings: NetworkSettings) -> Mapping[str, str]:
    """Returns the environment variables by which programs find the host's certificates."""
    return {} if settings.certificates is None else certificate_variables(CERTIFICATES)


def identity(settings: NetworkSettings) -> str:
    """Returns a text for a root's name that depends on the settings visible in a sandbox; empty for none.

    It does not depend on the addresses of the host's servers, or on the proxy, because the same names should lead to
    the same servers. Raises InfrastructureError if the certificates cannot be read.
    """
    certificates = None if settings.certificates is None else hashlib.sha256(_read(settings)).hexdigest()
    lent = {"certificates": certificates, "hosts": sorted(settings.hosts)}
    if not any(lent.values()):
        return ""
    return f"; lent {hashlib.sha256(canonical_json(lent).encode()).hexdigest()}"


def prepare(sandbox: Sandbox, settings: NetworkSettings) -> None:
    """Writes these files in a sandbox with a network; raises InfrastructureError if that fails."""
    outcome = sandbox.exec(_NAMES, timeout=_TIMEOUT, cwd="/", user="root")
    if outcome.exit_code != 0:
        complaint = outcome.output.decode(errors="replace").strip()
        raise InfrastructureError(f"/etc/resolv.conf of {sandbox.image.name} cannot be written: {complaint}")
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
