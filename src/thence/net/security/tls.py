"""TLS between servers, and between clients and servers.

Servers prove to each other who they are: each has a certificate whose DNS name is the server's name, signed by an authority
that all of them trust. Clients check the server they call in the same way, and prove who they are by a token
(``net.security.tokens``); a certificate that they show must be one of the same authority, and says no more than that.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any, Final

import msgspec

from thence.errors import ConfigError, StrangerFrame

_UNKNOWN_SIGNER: Final = frozenset({18, 19, 20, 21})
"""What OpenSSL calls a certificate that is signed by itself, or by somebody whom the one who looks does not know."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where certificates are."""

    certificate: Path
    key: Path
    authority: Path


class Certificates:
    """What a server shows to others and whom it believes, as its files say; read again when these change."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files."""
        self.files = files
        self.incoming, self.outgoing = server_side(files), client_side(files)
        """How connections are taken, and how they are made. Those that stand keep what they were made with."""
        self.binding = binding_of(shown_by(self.incoming))
        """What proofs over connections that are taken now must cover."""

    def read(self) -> None:
        """Read the files as they are now; if that cannot be, ``ConfigError``, and what was read before stays."""
        incoming, outgoing = server_side(self.files), client_side(self.files)
        self.incoming, self.outgoing, self.binding = incoming, outgoing, binding_of(shown_by(incoming))


def server_side(files: TlsFiles) -> ssl.SSLContext:
    """Return how connections are taken. Whoever calls itself a server is asked for its certificate when it says so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load(context, files)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_side(files: TlsFiles | None, authority: Path | None = None) -> ssl.SSLContext:
    """Return how connections are made: with a certificate of our own, or only checking the other side's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if files is not None:
        _load(context, files)
    elif authority is not None:
        _trust(context, authority)
    else:
        context.load_default_certs()
    return context


def why_not_connected(error: Exception) -> str:
    """Say why a client has no connection, and what to do if it does not know who signed the certificate of the server."""
    said = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _UNKNOWN_SIGNER:
        return f"{said}. Give the authority that signed it: --tls-ca or THENCE_CA, in a program authority=…"
    return said


def binding_of(certificate: bytes | None) -> bytes:
    """Return what stands for a channel to the server that shows this certificate; nothing if there is none."""
    return hashlib.sha256(certificate).digest() if certificate else b""


def shown_by(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a server shows with this context, by shaking hands with it.

    The file may have been replaced since the context was made, and may hold more than one certificate.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname, looking.verify_mode = False, ssl.CERT_NONE
    client = looking.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue  # It is the other side's turn.
    return client.getpeercert(binary_form=True) or b""


def check_name(certificate: dict[str, Any] | None, name: str) -> None:
    """Refuse somebody who calls itself ``name`` with the certificate of another."""
    names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
    if name not in names:
        raise StrangerFrame(f"somebody calls itself {name!r} with a certificate for {', '.join(names) or 'nobody'}")


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"certificate {files.certificate} with key {files.key}: {error}") from error
    _trust(context, files.authority)


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"certificate authority {authority}: {error}") from error
