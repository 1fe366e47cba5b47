"""Signatures: what is signed can be checked, and nothing else passes; the group is what its source says."""

from __future__ import annotations

import pytest

from thence.errors import ConfigError
from thence.net.protocol import PROTOCOL, Challenge, ClientHello, Proof
from thence.net.security.signatures import (
    GENERATOR,
    PRIME,
    PUBLIC_BYTES,
    SIGNATURE_BYTES,
    is_public_key,
    is_signature,
    public_key,
    sign,
)
from thence.net.security.tokens import is_proof, new_nonce, new_token, parse_verifier

SECRET = bytes(range(32))


def is_probably_prime(number: int) -> bool:
    """Miller and Rabin's test, for some bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def test_the_group_is_that_of_rfc_3526() -> None:
    """The prime is 2^2048 - 2^1984 - 1 + 2^64 * ([2^1918 pi] + 124476), and half of what lies below it is prime too."""
    assert PRIME.bit_length() == 2048
    assert PRIME >> 1984 == 2**64 - 1
    assert PRIME % 2**64 == 2**64 - 1
    assert is_probably_prime(PRIME)
    assert is_probably_prime((PRIME - 1) // 2)
    assert pow(GENERATOR, (PRIME - 1) // 2, PRIME) == 1


def test_a_signature_holds_for_its_text_and_its_key_only() -> None:
    public, signature = public_key(SECRET), sign(SECRET, b"text")
    assert (len(public), len(signature)) == (PUBLIC_BYTES, SIGNATURE_BYTES)
    assert is_signature(public, b"text", signature)
    assert not is_signature(public, b"other", signature)
    assert not is_signature(public_key(bytes(32)), b"text", signature)
    for at in (0, 31, 32, SIGNATURE_BYTES - 1):
        changed = bytearray(signature)
        changed[at] ^= 1
        assert not is_signature(public, b"text", bytes(changed))
    assert not is_signature(public, b"text", signature[:-1])
    assert not is_signature(public, b"text", b"")
    assert sign(SECRET, b"text") != signature, "the nonce is used once"


@pytest.mark.parametrize("number", [0, 1, PRIME - 1, PRIME, 2**2048 - 1])
def test_what_is_no_key_checks_nothing(number: int) -> None:
    public = number.to_bytes(PUBLIC_BYTES)
    assert not is_public_key(public)
    assert not is_signature(public, b"text", sign(SECRET, b"text"))


def test_a_token_that_signs_is_proved_by_its_signature_and_by_nothing_less() -> None:
    token, other = new_token("ops"), new_token("ops")
    verifier = parse_verifier(str(token.signed_verifier()), "here")
    assert verifier == token.signed_verifier()
    hello, challenge = (
        ClientHello(PROTOCOL, "", entry="ops", nonce=new_nonce()),
        Challenge("s1", "flat", new_nonce(), signed=True),
    )
    right = token.signed(hello, challenge, b"channel")
    assert is_proof(verifier, hello, challenge, right, b"channel")
    assert not is_proof(verifier, hello, challenge, right, b"another channel")
    assert not is_proof(verifier, hello, challenge, Proof(right.proof), b"channel")
    assert not is_proof(verifier, hello, challenge, Proof(right.proof, right.ticket), b"channel")
    false = other.signed(hello, challenge, b"channel")
    assert not is_proof(verifier, hello, challenge, false, b"channel")
    assert not is_proof(verifier, hello, challenge, Proof(right.proof, right.ticket, false.signature), b"channel")
    with pytest.raises(ConfigError, match="was cut or changed"):
        parse_verifier(str(verifier).replace(":", ":AAAA", 1), "here")
