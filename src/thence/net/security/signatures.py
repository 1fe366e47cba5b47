"""Signatures by which a client proves a token to a server without giving it anything that it could use elsewhere.

A proof with a verifier of the first kind (``net.security.tokens``) shows the server the client's key, as SCRAM does: a server
that was taken over, and has the verifier, can then log in as that client wherever the same verifier is. A signature shows
nothing.

The scheme is that of Schnorr (Efficient Signature Generation by Smart Cards, 1991) in the group of squares modulo the prime of
2048 bits of RFC 3526, section 3. It is here since Python has no signatures of its own, and a server should need nothing else.

Rules:

* The secret exponent has 256 bits. The nonce has 128 bits more than what it hides, so that the sum can be left as it is: what is
  told of the secret is less than one part in 2**128.
* The nonce is made of the secret, of chance and of what is signed, so that a bad source of chance alone reveals nothing.
* A check takes some milliseconds. Whoever may ask for one has shown before that it knows the token, or the verifier.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

PRIME: Final = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B"
    "302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE6"
    "49286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB9ED529077096966D"
    "670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718"
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
GENERATOR: Final = 4
"""A square, so of the prime order (PRIME - 1) / 2."""

PUBLIC_BYTES: Final = 256
SIGNATURE_BYTES: Final = 32 + 96

_EXPONENT_BYTES: Final = 32
_NONCE_BYTES: Final = 80


def public_key(secret: bytes) -> bytes:
    """Return what checks the signatures of a secret."""
    return pow(GENERATOR, _exponent(secret), PRIME).to_bytes(PUBLIC_BYTES)


def is_public_key(public: bytes) -> bool:
    """Say whether this can be a public key."""
    return len(public) == PUBLIC_BYTES and 1 < int.from_bytes(public) < PRIME - 1


def sign(secret: bytes, text: bytes) -> bytes:
    """Return a signature of a text."""
    chance = hashlib.shake_256(b"thence nonce" + secret + secrets.token_bytes(32) + text).digest(_NONCE_BYTES)
    nonce = int.from_bytes(chance)
    challenge = _challenge(pow(GENERATOR, nonce, PRIME), public_key(secret), text)
    answer = nonce + int.from_bytes(challenge) * _exponent(secret)
    return challenge + answer.to_bytes(SIGNATURE_BYTES - len(challenge))


def is_signature(public: bytes, text: bytes, signature: bytes) -> bool:
    """Say whether whoever has the secret of this public key signed the text."""
    if len(signature) != SIGNATURE_BYTES or not is_public_key(public):
        return False
    challenge, answer = signature[:32], int.from_bytes(signature[32:])
    shown = pow(GENERATOR, answer, PRIME) * pow(int.from_bytes(public), -int.from_bytes(challenge), PRIME) % PRIME
    return hmac.compare_digest(_challenge(shown, public, text), challenge)


def _exponent(secret: bytes) -> int:
    return int.from_bytes(hmac.digest(secret, b"thence signing", "sha256")[:_EXPONENT_BYTES])


def _challenge(shown: int, public: bytes, text: bytes) -> bytes:
    return hashlib.sha256(b"thence signature" + shown.to_bytes(PUBLIC_BYTES) + public + text).digest()
