"""TLS: the server's certificate, and those that clients must show."""

from __future__ import annotations

import ssl

from tvsnap.model.errors import UsageError
from tvsnap.plugins.server.settings import ServerSettings

HANDSHAKE_PATIENCE = 15.0
"""Seconds within which a connection is to be set up."""


def server_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Returns what TCP connections are encrypted with; None if they are not.

    Args:
        settings: name the files.

    Raises:
        UsageError: a file cannot be read, or holds no certificate or key, or the key is of another certificate.
    """
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, _no_password)
    except (OSError, UsageError) as error:
        raise UsageError(
            f"the certificate {settings.tls_certificate} cannot be used with the key "
            f"{settings.tls_key or settings.tls_certificate}: {error} (--tls-certificate, --tls-key)"
        ) from None
    if settings.tls_client_ca is not None:
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except OSError as error:
            raise UsageError(
                f"the certificates of {settings.tls_client_ca} cannot be used: {error} (--tls-client-ca)"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise UsageError("the key has a password, for which a server that starts by itself has nobody to ask")
