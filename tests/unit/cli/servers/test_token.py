"""``thence token``, and what ``thence serve`` refuses at the start."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.unit.cli import refusal, run
from thence.net.security.access import AccessFile
from thence.net.security.tokens import parse_token


@pytest.mark.parametrize("name", ["ann", "a name", 'quo"ted', "döt.ted"])
def test_what_is_printed_is_what_the_server_takes(name: str, tmp_path: Path) -> None:
    code, out, err = run("token", "new", name)
    token, *lines = out.splitlines()
    assert code == 0
    assert "shown this once" in err
    says = tomllib.loads("\n".join(lines))
    assert says["clients"][name]["tokens"] == [str(parse_token(token).verifier())]
    file = tmp_path / "access.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    assert AccessFile(file).path == file


def test_as_json() -> None:
    said = json.loads(run("token", "new", "ann", "--json").out)
    assert str(parse_token(said["token"]).verifier()) == said["verifier"]


def test_a_token_that_signs(tmp_path: Path) -> None:
    said = json.loads(run("token", "new", "ops", "--signed", "--json").out)
    assert str(parse_token(said["token"]).signed_verifier()) == said["verifier"]
    token, *lines = run("token", "new", "ops", "--signed").out.splitlines()
    assert tomllib.loads("\n".join(lines))["clients"]["ops"]["tokens"] == [str(parse_token(token).signed_verifier())]
    (tmp_path / "access.toml").write_text("\n".join(lines), encoding="utf-8")
    assert AccessFile(tmp_path / "access.toml").wants_signature("ops")


def test_no_two_tokens_are_the_same() -> None:
    assert run("token", "new", "ann").out != run("token", "new", "ann").out


def test_a_name_that_cannot_be() -> None:
    assert "cannot be an entry" in refusal("token", "new", "a~b")


TOPOLOGY = 'name = "one"\n[domains.D]\nmembers = ["s1"]\n[servers.s1]\naddress = "{address}"\n'


@pytest.mark.parametrize(
    ("address", "options", "why"),
    [
        ("0.0.0.0:0", [], "'0.0.0.0' can be reached from other machines, and whoever reaches it would be let in"),
        ("0.0.0.0:0", ["--access", "access.toml", "--insecure"], "tokens go over TLS only there"),
        ("127.0.0.1:0", ["--access", "nowhere.toml"], "access file nowhere.toml: "),
        ("127.0.0.1:0", ["--tls-cert", "x.pem"], "TLS needs all of --tls-cert, --tls-key and --tls-ca"),
    ],
)
def test_a_server_that_would_let_in_whoever_comes_does_not_start(
    tmp_path: Path, address: str, options: list[str], why: str
) -> None:
    (tmp_path / "one.toml").write_text(TOPOLOGY.format(address=address), encoding="utf-8")
    (tmp_path / "access.toml").write_text("", encoding="utf-8")
    # In a process of its own, which has a log of its own.
    words = [sys.executable, "-m", "thence.cli.main", "serve", "one.toml", "--server", "s1", "--durability", "memory", *options]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("thence: error: ")
    assert why in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_token_without_tls_goes_nowhere_else() -> None:
    said = json.loads(run("token", "new", "ann", "--json").out)
    assert "use thences://" in refusal("status", "thence://192.0.2.1:7401", "--token", said["token"])
    assert "this is no token" in refusal("status", "thence://127.0.0.1:7401", "--token", "secret")
