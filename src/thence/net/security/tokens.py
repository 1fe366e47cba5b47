"""Tokens: how a client proves which entry of the access file it is, without telling the token to anybody.

A token is the name of an entry, a dot, and 32 random bytes. The server keeps a *verifier* of it, from which the token cannot be
computed. Each side contributes a number used once; the client proves that it has the token, and the server that it has the
verifier, over everything that was said. The scheme is that of SCRAM (RFC 5802, section 3) with SHA-256.

Rules:

* Over TLS a proof also covers the certificate of the server, as each side sees it: the channel binding ``tls-server-end-point``
  of RFC 5929, section 4, but always with SHA-256. So a server with another certificate cannot pass a login on to this one.
  Neither side goes on over TLS with a proof that covers no certificate; those of version 0.1 are told so.
* A proof with a verifier of the first kind shows the server the key of the client: a server that has the verifier, and was taken
  over, can prove the token wherever that verifier is. With one of the second kind the client signs instead, which shows nothing
  (``net.security.signatures``). That takes milliseconds, so it is for those who may do much and log in seldom: operators.
* The token never crosses the wire, and what does is worth nothing a second time: the server's nonce is new each time.
* Whoever reads the access file cannot connect with what is in it.
* There is no salt and no slow hash, as for passwords: nobody can guess 32 random bytes, and no other tokens are taken.
* All comparisons take the same time, whatever they compare.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

import msgspec

from thence.errors import ConfigError
from thence.net.protocol import Challenge, ClientHello, Proof
from thence.net.security.signatures import is_public_key, is_signature, public_key, sign

SECRET_BYTES: Final = 32
MAX_ENTRY_CHARACTERS: Final = 100
NONCE_BYTES: Final = 32
VERIFIER_FORMAT: Final = "v1"
SIGNED_FORMAT: Final = "v2"
TEMPORARY_MARK: Final = "~"
"""Stands between the name of an entry and what is drawn at random, in the name of a client that was given none."""

_TICKET: Final = b"ticket"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class Verifier(NamedTuple):
    """What a server keeps of a token."""

    stored: bytes
    """The digest of the key with which the client proves itself; or the public key with which its signatures are checked."""
    answering: bytes
    """The key with which the server proves itself."""
    signed: bool = False
    """Which of the two ``stored`` is."""

    def __str__(self) -> str:
        kind = SIGNED_FORMAT if self.signed else VERIFIER_FORMAT
        return ":".join((kind, _written(self.stored), _written(self.answering)))


class Token(NamedTuple):
    """What a client keeps."""

    entry: str
    secret: bytes

    def __str__(self) -> str:
        return f"{self.entry}.{_written(self.secret)}"

    def __repr__(self) -> str:
        return f"<Token of {self.entry!r}>"

    def verifier(self) -> Verifier:
        """Return what the server is to keep."""
        return Verifier(hashlib.sha256(self._proving).digest(), mac(self.secret, b"thence server"))

    def signed_verifier(self) -> Verifier:
        """Return what the server is to keep of a token that signs."""
        return Verifier(public_key(self.secret), mac(self.secret, b"thence server"), signed=True)

    @property
    def _proving(self) -> bytes:
        return mac(self.secret, b"thence client")

    def prove(self, hello: ClientHello, challenge: Challenge, binding: bytes = b"") -> bytes:
        """Return the proof that the server asks for; ``binding`` is that of the channel, nothing without TLS."""
        return combined(self._proving, mac(self.verifier().stored, proven_text(hello, challenge, binding)))

    def signed(self, hello: ClientHello, challenge: Challenge, binding: bytes = b"") -> Proof:
        """Return the proof with a signature."""
        said = proven_text(hello, challenge, binding)
        ticket = mac(self.verifier().answering, _TICKET + said)
        return Proof(self.prove(hello, challenge, binding), ticket, sign(self.secret, said))

    def is_answer(self, hello: ClientHello, challenge: Challenge, answer: bytes, binding: bytes = b"") -> bool:
        """Say whether whoever answered has the verifier of this token."""
        return hmac.compare_digest(mac(self.verifier().answering, proven_text(hello, challenge, binding)), answer)


def new_token(entry: str) -> Token:
    """Return a token that nobody has."""
    if not 0 < len(entry) <= MAX_ENTRY_CHARACTERS or not entry.isprintable() or TEMPORARY_MARK in entry:
        raise ConfigError(
            f"{entry!r} cannot be an entry of an access file; it must be 1 to {MAX_ENTRY_CHARACTERS} characters that can be "
            f"printed, and none of them {TEMPORARY_MARK}"
        )
    return Token(entry, secrets.token_bytes(SECRET_BYTES))


def new_nonce() -> bytes:
    """Return a number that is used once."""
    return secrets.token_bytes(NONCE_BYTES)


def parse_token(text: str) -> Token:
    """Return the token that a person or a program was given. What is wrong is said without repeating it."""
    entry, dot, written = text.strip().rpartition(".")
    secret = _read(written)
    if not dot or not entry or secret is None or len(secret) != SECRET_BYTES:
        raise ConfigError("this is no token; a token is what 'thence token new' prints: a name, a dot and 43 characters")
    return Token(entry, secret)


def parse_verifier(text: str, where: str) -> Verifier:
    """Return what an access file says of a token."""
    parts = text.split(":")
    digests = [_read(part) for part in parts[1:]]
    if parts[0] not in {VERIFIER_FORMAT, SIGNED_FORMAT} or len(digests) != 2:
        raise ConfigError(f"{where}: {text[:12]!r}… is nothing that 'thence token new' prints")
    stored, answering = digests
    signed = parts[0] == SIGNED_FORMAT
    whole = stored is not None and (is_public_key(stored) if signed else len(stored) == _DIGEST_BYTES)
    if stored is None or answering is None or not whole or len(answering) != _DIGEST_BYTES:
        raise ConfigError(f"{where}: {text[:12]!r}… was cut or changed; make another one with 'thence token new'")
    return Verifier(stored, answering, signed)


def is_proof(verifier: Verifier, hello: ClientHello, challenge: Challenge, said: Proof, binding: bytes = b"") -> bool:
    """Say whether whoever wrote the proof has the token of this verifier."""
    if verifier.signed:
        text = proven_text(hello, challenge, binding)
        ticket = mac(verifier.answering, _TICKET + text)
        return hmac.compare_digest(ticket, said.ticket) and is_signature(verifier.stored, text, said.signature)
    if len(said.proof) != _DIGEST_BYTES:
        return False
    proving = combined(said.proof, mac(verifier.stored, proven_text(hello, challenge, binding)))
    return hmac.compare_digest(hashlib.sha256(proving).digest(), verifier.stored)


def answer(verifier: Verifier, hello: ClientHello, challenge: Challenge, binding: bytes = b"") -> bytes:
    """Return the proof that the server owes the client."""
    return mac(verifier.answering, proven_text(hello, challenge, binding))


def proven_text(hello: ClientHello, challenge: Challenge, binding: bytes) -> bytes:
    """Return everything that was said, so that a proof holds for nothing else.

    One by one, and not the structs as they are: a later version may add fields to these that an older one does not know.
    """
    client = (hello.protocol, hello.name, hello.temporary, hello.entry, hello.nonce)
    server = (challenge.server, challenge.fabric, challenge.nonce)
    if not binding:  # As in version 0.1.
        return msgspec.msgpack.encode(("thence token", *client, *server))
    return msgspec.msgpack.encode(("thence bound token", *client, *server, binding))


def mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def combined(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def _written(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _read(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
