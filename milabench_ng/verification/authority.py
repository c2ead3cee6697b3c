"""Requests to time-stamping authorities, and their replies (RFC 3161), by rfc3161-client: the extra ``stamps``."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from rfc3161_client import (
    HashAlgorithm,
    PKIStatus,
    TimestampRequestBuilder,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

_SHA256 = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")
_UNFIT = (ValueError, VerificationError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension)
"""What the library raises for a reply that is none, or that nobody who counts has made."""


class UnfitReplyError(Exception):
    """A reply that is no stamp, or not one by the authorities."""


def make_request(line: bytes) -> bytes:
    """A request for a stamp on the SHA-256 of ``line``, with the authority's certificate in the reply."""
    asked = TimestampRequestBuilder().data(line).hash_algorithm(HashAlgorithm.SHA256)
    return asked.cert_request(cert_request=True).build().as_bytes()


def read_certificates(content: bytes) -> list[x509.Certificate]:
    """The certificates in a PEM file. Raises ValueError if there is none."""
    return x509.load_pem_x509_certificates(content)


def read_reply(content: bytes) -> tuple[str, datetime]:
    """The SHA-256 that a reply stamps, and when, unchecked. Raises UnfitReplyError if it is no stamp."""
    try:
        reply = decode_timestamp_response(content)
        status, imprint = PKIStatus(reply.status), reply.tst_info.message_imprint
        if imprint.hash_algorithm != _SHA256:
            digest = imprint.hash_algorithm.dotted_string
            raise UnfitReplyError(
                f"it stamps a digest of type {digest}, not SHA-256. Send the request of mnb stamp again"
            )
        if status is not PKIStatus.GRANTED:
            raise UnfitReplyError(f"the authority did not grant the request: {status.name}")
        return imprint.message.hex(), reply.tst_info.gen_time.astimezone(UTC)
    except _UNFIT:
        raise UnfitReplyError(
            "not a reply from a time-stamping authority. Give its .tsr file, or a .sig file"
        ) from None


def check_reply(content: bytes, head: str, authorities: list[x509.Certificate]) -> datetime:
    """When one of ``authorities``, or whom they vouch for, stamped ``head``; the certificates must be valid then.

    Raises UnfitReplyError if nobody of them did.
    """
    _, stamped = read_reply(content)
    try:
        checked = VerifierBuilder(roots=authorities).build()
        checked.verify(decode_timestamp_response(content), bytes.fromhex(head))
    except _UNFIT as error:
        raise UnfitReplyError(str(error)) from None
    return stamped
