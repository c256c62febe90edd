"""The second opinion of the `sigstore` library, for the bundles that it can judge.

Imported when the first such bundle comes: the library costs half a second and 30 MB.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography import x509

from corral.errors import Rejected
from corral.signing.refusals import refused, shown


def check_with_library(
    content: bytes, *, digest: bytes, document: bytes, identify: Callable[[x509.Certificate], str]
) -> None:
    """Judge a bundle of the newer kind under a `trusted_root.json`; nothing goes over the network.

    It repeats what we check and adds what we do not: the proof of inclusion and the log's checkpoint.
    """
    from sigstore.hashes import Hashed
    from sigstore.models import Bundle, TrustedRoot
    from sigstore.verify import Verifier
    from sigstore_models.common.v1 import HashAlgorithm
    from sigstore_models.trustroot.v1 import TrustedRoot as Document

    try:
        verifier = Verifier(trusted_root=TrustedRoot(Document.from_json(document)))
        verifier.verify_artifact(
            Hashed(algorithm=HashAlgorithm.SHA2_256, digest=digest),
            Bundle.from_json(content),
            _Identified(identify),
        )
    except Rejected:
        raise
    except Exception as error:  # whatever hostile input makes it raise, the archive is not proven
        raise refused(f"the sigstore library says: {shown(error) or type(error).__name__}") from error


class _Identified:
    """The library's policy, judged by our own list."""

    def __init__(self, identify: Callable[[x509.Certificate], str]) -> None:
        self._identify = identify

    def verify(self, cert: x509.Certificate) -> None:
        self._identify(cert)
