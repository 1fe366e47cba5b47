"""Reading access files, and what patterns stand for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import ConfigError
from thence.net.protocol import PROTOCOL, Challenge, ClientHello, Proof
from thence.net.security.access import EVERYTHING, MAX_TOKENS_EACH, AccessFile, Patterns
from thence.net.security.credentials import Security
from thence.net.security.tokens import Token, new_nonce, new_token, parse_token, parse_verifier

short = st.text("ab*", max_size=6)


@given(st.lists(short, max_size=3), st.text("ab*\n", max_size=8))
def test_a_star_stands_for_any_text(patterns: list[str], text: str) -> None:
    meant = [re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL) for pattern in patterns]
    assert Patterns(patterns).match(text) == any(regex.fullmatch(text) for regex in meant)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(text, encoding="utf-8")
    return path


VERIFIER = str(new_token("ann").verifier())

BAD = {
    "no toml": ("clients = [", "access.toml"),
    "too deep": (f"clients = {'[' * 100_000}", "access.toml"),
    "unknown key": (f'[clients.ann]\ntokens = ["{VERIFIER}"]\nsends = []', "sends"),
    "unknown table": ("[servers.s1]", "servers"),
    "no tokens": ("[clients.ann]", "tokens"),
    "empty tokens": ("[clients.ann]\ntokens = []", "clients.ann: 0 tokens"),
    "too many tokens": (f"[clients.ann]\ntokens = {[VERIFIER] * (MAX_TOKENS_EACH + 1)}", "MAX_TOKENS_EACH"),
    "text for a list": (f'[clients.ann]\ntokens = ["{VERIFIER}"]\nsend = "bob"', "send"),
    "yes for true": (f'[clients.ann]\ntokens = ["{VERIFIER}"]\nbroadcast = "yes"', "broadcast"),
    "a token itself": (f'[clients.ann]\ntokens = ["{new_token("ann")}"]', "is nothing that 'thence token new' prints"),
    "cut": (f'[clients.ann]\ntokens = ["{VERIFIER[:-3]}"]', "was cut or changed"),
}


@pytest.mark.parametrize(("text", "named"), BAD.values(), ids=BAD)
def test_a_file_that_says_what_cannot_be_is_refused_whole(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        AccessFile(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        AccessFile(tmp_path / "none.toml")


def test_a_file_that_is_emptied_changes_nothing(tmp_path: Path) -> None:
    """Whoever writes a file in its place empties it first. All clients were turned away, and all that they followed was ended."""
    path = tmp_path / "access.toml"
    path.write_text(f'[clients.ann]\ntokens = ["{new_token("ann").verifier()}"]\nsubscribe = ["*"]\n')
    access = AccessFile(path)
    path.write_text("")
    with pytest.raises(ConfigError, match=re.escape("it is empty, as if being written; to let nobody in, write [clients]")):
        access.read()
    assert not access.objection_to_follower("ann", "ann", "news")
    path.write_text("[clients]\n")
    access.read()
    assert access.objection_to_follower("ann", "ann", "news")
    path.write_text("")
    assert AccessFile(path).objection_to_follower("ann", "ann", "news"), "a server may start with nobody in it"


def test_a_server_warns_of_operators_whose_tokens_do_not_sign(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A captured server that has the verifier of such a token can log in with it elsewhere."""
    ops, chief, ann = new_token("ops"), new_token("chief"), new_token("ann")
    text = "".join(
        [
            f'[clients.ops]\ntokens = ["{ops.signed_verifier()}", "{ops.verifier()}"]\ntopology = true\n',
            f'[clients.chief]\ntokens = ["{chief.signed_verifier()}"]\ntopology = true\n',
            f'[clients.ann]\ntokens = ["{ann.verifier()}"]\nstatus = true\n',
        ]
    )
    Security(access=written(tmp_path, text))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("may lead changes (topology = true) with a token that does not sign: ops. ")
    caplog.clear()
    Security(access=written(tmp_path, text.replace(f', "{ops.verifier()}"', "")))
    assert not caplog.records


def proved(access: AccessFile, token: Token, entry: str) -> bool:
    hello = ClientHello(PROTOCOL, "x", entry=entry, nonce=new_nonce())
    challenge = Challenge("s1", "flat", new_nonce())
    return access.admit(hello, challenge, Proof(token.prove(hello, challenge))) is not None


def test_only_the_token_of_an_entry_proves_it(tmp_path: Path) -> None:
    ann, bob = new_token("ann"), new_token("bob")
    lines = [f'[clients.{token.entry}]\ntokens = ["{token.verifier()}"]\n' for token in (ann, bob)]
    access = AccessFile(written(tmp_path, "".join(lines)))
    assert proved(access, ann, "ann")
    assert proved(access, bob, "bob")
    assert not proved(access, ann, "bob")
    assert not proved(access, new_token("ann"), "ann")
    assert not proved(access, ann, "nobody")


def test_what_stands_in_the_file_is_no_token() -> None:
    """Whoever reads the file has the two keys in it. None of them, nor anything made of them as tokens are, proves anything."""
    token = new_token("ann")
    verifier = token.verifier()
    hello, challenge = ClientHello(PROTOCOL, "ann", entry="ann", nonce=new_nonce()), Challenge("s1", "flat", new_nonce())
    right = token.prove(hello, challenge)
    stolen = [Token("ann", secret).prove(hello, challenge) for secret in verifier[:2]]
    assert right not in (*stolen, *verifier[:2])
    assert str(token) not in str(verifier)


def test_tokens_and_verifiers_can_be_written_and_read() -> None:
    token = new_token("a name.with dots")
    assert parse_token(f" {token}\n") == token
    assert parse_verifier(str(token.verifier()), "here") == token.verifier()
    assert str(token) not in repr(token)


@pytest.mark.parametrize("entry", ["", "a\nb", "a~b", "x" * 101])
def test_names_that_no_entry_can_have(entry: str) -> None:
    with pytest.raises(ConfigError, match="cannot be an entry"):
        new_token(entry)


def test_without_a_file_all_may_do_all() -> None:
    assert not EVERYTHING.objection_to_name("x")
    assert not EVERYTHING.objection_to_message(("a", "b"), None)
    assert not EVERYTHING.objection_to_message(None, None)
    assert not EVERYTHING.objection_to_message(None, "topic")
    assert not EVERYTHING.objection_to_subscription("topic")
    assert not EVERYTHING.objection_to_status()
    assert not EVERYTHING.objection_to_agents()
    assert not EVERYTHING.objection_to_change()
