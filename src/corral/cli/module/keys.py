"""Keys and signatures of module authors, as files."""

from __future__ import annotations

import os
import pathlib

from corral.cli.failure import Refused, WrongUsage
from corral.cli.module.files import refusals


def make_key(base: pathlib.Path) -> pathlib.Path:
    """`BASE.key` for the author alone and `BASE.pub` for everybody; an existing key is never replaced."""
    from corral.signing import new_key

    if not base.name:
        raise WrongUsage(f"'{base}' is no name of a file", hint="write --new-key NAME")
    private, public = base.with_name(base.name + ".key"), base.with_name(base.name + ".pub")
    made = new_key()
    with refusals():
        try:
            descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise Refused(f"{private} is there already", hint="choose another name") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.private_pem)
        public.write_bytes(made.public_pem)
    return private


def sign_archive(archive: pathlib.Path, key: pathlib.Path, passphrase: str | None) -> pathlib.Path:
    """Write the archive's `.sig` beside it."""
    from corral.signing import sign_keyed

    try:
        pem = key.read_bytes()
    except OSError as error:
        raise WrongUsage(f"cannot read {key}: {error.strerror}") from error
    with refusals():
        signature = sign_keyed(archive, pem, passphrase.encode() if passphrase else None)
        written = archive.with_name(archive.name + ".sig")
        written.write_bytes(signature)
    return written
