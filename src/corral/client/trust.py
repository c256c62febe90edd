"""Whom connections with TLS trust. Verification is always on."""

from __future__ import annotations

import ssl


def trusting_context(ca_file: str | None, *, any_name: bool = False) -> ssl.SSLContext:
    """Certificates of `ca_file` in place of those of the system; `any_name`: also when they name another host.

    ValueError when there is no certificate in the file, OSError when it cannot be read."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(
            f"there is no certificate in the CA file {ca_file}; give a PEM file, with lines like "
            "'-----BEGIN CERTIFICATE-----'"
        ) from error
    if ca_file is not None:
        # An authority that was named need not have what public ones must, and may be the server's own certificate.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = not any_name
    return context
