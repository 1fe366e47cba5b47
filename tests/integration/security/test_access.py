"""Who is let in by its token, and what it may do then: every rule of the access file, at real servers, seen from both sides."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

import thence
from tests.support.servers.running import flat, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker, certificates, prove, recording, secure_url
from tests.unit.cli import run as run_cli
from thence.client.client import Client
from thence.core.topology.toml import write
from thence.errors import ConfigError, NotAllowed, Refusal, UsageError
from thence.net.protocol import (
    PROTOCOL,
    BatchItem,
    Challenge,
    ClientHello,
    ClientWelcome,
    Proof,
    Publish,
    Refused,
    ServerHello,
    ViewRequest,
    write_messages,
)
from thence.net.security.tokens import new_nonce, new_token, parse_token

FROM_HERE = r"127\.0\.0\.1:\d+: "


def complained(caplog: pytest.LogCaptureFixture, what: str) -> bool:
    """Say whether the log of a server names this machine and what it did."""
    return any(re.search(FROM_HERE + what, record.getMessage()) for record in caplog.records)


# --- getting in ------------------------------------------------------------------------------------------------------


async def test_with_the_right_token_everything_is_as_without(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"send": ["bob"], "publish": ["news"]}, bob=EVERYTHING)
    async with (
        servers(topology, access=access.path),
        thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
        thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]) as bob,
    ):
        bob.on_message(lambda message: message.reply(message.body + b"!") if message.wants_reply else None)
        await bob.subscribe("news")
        await ann.send("bob", b"hello")
        await ann.publish("news", b"heard")
        assert (await ann.request("bob", b"there")).body == b"there!"
        assert (await bob.status())["server"] == "s1"


async def test_scripts_and_commands_have_tokens_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    token = access.tokens["ann"]
    (tmp_path / "next.toml").write_text(write(topology).replace("[domains", "version = 2\n[domains", 1), encoding="utf-8")

    def script() -> bytes:
        with thence.connect_blocking(url(topology, "s1"), "ann", token=token) as ann:
            ann.send("ann", b"to myself")
            return ann.receive().body

    commands = [
        ("agent", "list", url(topology, "s1"), "--json"),
        ("status", url(topology, "s1"), "--json"),
        ("bench", url(topology, "s1"), "--count", "10", "--round-trips", "5", "--json"),
        ("topology", "apply", str(tmp_path / "next.toml"), "--plan"),
    ]
    async with servers(topology, access=access.path):
        assert await asyncio.to_thread(script) == b"to myself"
        for command in commands:
            refused = await asyncio.to_thread(run_cli, *command)
            assert refused.code == 2
            assert "s1 wants a token" in refused.err
            ended = await asyncio.to_thread(run_cli, *command, "--token", token)
            assert (ended.code, ended.err) == (0, ""), ended.err
        monkeypatch.setenv("THENCE_TOKEN", token)
        assert (await asyncio.to_thread(run_cli, *commands[1])).code == 0


async def test_the_environment_is_enough_for_every_command_also_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")["s1"]
    where = secure_url(topology, "s1")
    (tmp_path / "now.toml").write_text(write(topology), encoding="utf-8")
    (tmp_path / "next.toml").write_text(write(topology).replace("[domains", "version = 2\n[domains", 1), encoding="utf-8")
    monkeypatch.setenv("THENCE_TOKEN", access.tokens["ann"])
    monkeypatch.setenv("THENCE_CA", str(tls.authority))
    async with servers(topology, tls=tls, access=access.path):
        for command in (
            ("status", where),
            ("client", "list", where),
            ("agent", "list", where),
            ("send", where, "--name", "ann", "ann", "hello"),
            ("listen", where, "--name", "ann", "--count", "1"),
            ("top", str(tmp_path / "now.toml"), "--every", "0.1"),
            ("topology", "apply", str(tmp_path / "next.toml"), "--plan"),
            ("topology", "apply", str(tmp_path / "next.toml")),
        ):
            ended = await asyncio.to_thread(run_cli, *command)
            assert ended.code == 0, (command, ended.err)


async def test_a_client_without_a_name_is_called_after_its_entry(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"names": ["somebody"], "send": ["*"]})
    async with (
        servers(topology, access=access.path),
        thence.connect(url(topology, "s1"), token=access.tokens["ann"]) as ann,
    ):
        assert ann.name.startswith("ann~")
        await ann.send(ann.name, b"to myself")
        assert (await ann.receive()).body == b"to myself"


async def test_an_entry_need_not_be_a_name_for_clients_without_one(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", **{"ann, bob": {"names": ["*"], "send": ["*"]}})
    token = access.tokens["ann, bob"]
    async with servers(topology, access=access.path):
        async with thence.connect(url(topology, "s1"), token=token) as somebody:
            await somebody.send(somebody.name, b"to myself")
            assert (await somebody.receive()).body == b"to myself"
        for name in ("ann, bob", "ann, bob~a,b"):
            with pytest.raises(Refusal, match="a comma stands between several names"):
                async with Client(url(topology, "s1"), name, token=token):
                    pass


def _cut(token: str) -> str:
    """Return a token that differs in one character."""
    return token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1]


@pytest.mark.parametrize(
    ("name", "token", "why"),
    [
        ("ann", lambda _: None, "s1 wants a token"),
        ("ann", lambda tokens: _cut(tokens["ann"]), "the token of 'ann' is not right"),
        ("ann", lambda tokens: "ann" + tokens["bob"].removeprefix("bob"), "the token of 'ann' is not right"),
        ("ann", lambda tokens: tokens["bob"], "the access file does not let 'bob' be called 'ann'"),
        ("eve", lambda _: str(new_token("eve")), "the token of 'eve' is not right"),
        ("ann~x", lambda tokens: tokens["bob"], "the access file does not let 'bob' be called 'ann~x'"),
        ("", lambda _: None, "s1 wants a token"),
    ],
    ids=["none", "wrong", "secret of another", "token of another", "unknown entry", "temporary name of another", "no name"],
)
async def test_without_the_right_token_nobody_gets_in(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    token: Callable[[Mapping[str, str]], str | None],
    why: str,
) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={}, bob={})
    async with servers(topology, access=access.path) as running:
        with pytest.raises(Refusal, match=why):
            async with Client(url(topology, "s1"), name, token=token(access.tokens)):
                pass
        assert not running["s1"].node.directory.state.mailboxes
    assert complained(caplog, f"refused client '{name}' .*{why}")


async def test_what_is_no_token_is_said_without_repeating_it() -> None:
    for text in ("secret", "ann.secret", ".", "ann." + "A" * 44):
        with pytest.raises(ConfigError, match="this is no token") as error:
            thence.connect("thence://127.0.0.1:1", "ann", token=text)
        assert "secret" not in str(error.value)


# --- the handshake ---------------------------------------------------------------------------------------------------


async def test_a_session_played_again_gets_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    async with servers(topology, access=access.path) as running:
        async with (
            recording(topology.addresses["s1"]) as recorded,
            thence.connect(recorded.url, "ann", token=access.tokens["ann"]) as ann,
        ):
            await ann.send("ann", b"once")
            assert (await ann.receive()).body == b"once"
            ann.done()
        before = running["s1"].node.directory.state.mailboxes["ann"].sent
        again = await Speaker.call(topology.addresses["s1"])
        again.writer.write(recorded.from_client)
        assert isinstance(await again.hear(), Challenge)
        refused = await again.hear()
        assert isinstance(refused, Refused)
        assert refused.reason == "the token of 'ann' is not right"
        assert await again.ended()
        again.close()
        assert running["s1"].node.directory.state.mailboxes["ann"].sent == before == 1
    secret = parse_token(access.tokens["ann"]).secret
    wire = recorded.from_client + recorded.from_server
    assert len(wire) > 200
    for told in (secret, access.tokens["ann"].encode(), access.tokens["ann"].partition(".")[2].encode()):
        assert told not in wire, "the token crossed the wire"
    assert complained(caplog, "refused client 'ann' with the token of 'ann': the token of 'ann' is not right")


async def test_nothing_is_heard_of_whoever_does_not_prove_its_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    async with servers(topology, access=access.path) as running:
        messages = Publish(1, 1, None, None, write_messages([BatchItem(b"?")]))
        for skipped in (messages, ViewRequest("ask"), ClientHello(PROTOCOL, "ann", entry="ann", nonce=new_nonce())):
            eve = await Speaker.call(topology.addresses["s1"])
            eve.say(ClientHello(PROTOCOL, "ann", entry="ann", nonce=new_nonce()))
            eve.say(skipped)
            assert await eve.ended()
            eve.close()
            assert complained(caplog, f"a stranger: it says {type(skipped).__name__} where it must prove its token")
        eve = await Speaker.call(topology.addresses["s1"])
        eve.say(ClientHello(PROTOCOL, "ann", entry="ann", nonce=b"short"))
        refused = await eve.hear()
        assert isinstance(refused, Refused)
        assert refused.reason == "a nonce of 5 bytes; it must have 32"
        eve.close()
        assert not running["s1"].node.directory.state.mailboxes


async def test_a_proof_holds_for_nothing_but_what_it_was_made_for(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    token = parse_token(access.tokens["ann"])
    async with servers(topology, access=access.path):
        meant = ClientHello(PROTOCOL, "ann", entry="ann", nonce=new_nonce())
        changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({}, {}),
            ({"name": "bob"}, {}),
            ({"temporary": True}, {}),
            ({"nonce": new_nonce()}, {}),
            ({}, {"server": "s2"}),
            ({}, {"fabric": "other"}),
            ({}, {"nonce": new_nonce()}),
        ]
        for in_hello, in_challenge in changes:
            admitted = not in_hello and not in_challenge
            speaker = await Speaker.call(topology.addresses["s1"])
            said = msgspec.structs.replace(meant, **in_hello)
            speaker.say(said)
            challenge = await speaker.hear()
            assert isinstance(challenge, Challenge)
            assert (challenge.server, challenge.fabric) == ("s1", "flat")
            speaker.say(Proof(token.prove(meant, msgspec.structs.replace(challenge, **in_challenge))))
            answer = await speaker.hear()
            assert isinstance(answer, ClientWelcome if admitted else Refused)
            if isinstance(answer, ClientWelcome):
                assert token.is_answer(said, challenge, answer.proof)
            speaker.close()


@pytest.mark.parametrize("asks", [False, True], ids=["asks for no token", "does not know the token"])
async def test_a_client_with_a_token_goes_on_with_nobody_who_does_not_know_it(asks: bool) -> None:
    """Whoever took the place of the server must not get what the client has to say: no way down to talking without a token."""
    heard: list[object] = []

    async def pose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        impostor = Speaker(reader, writer)
        heard.append(await impostor.hear())
        if asks:
            impostor.say(Challenge("s1", "flat", new_nonce()))
            heard.append(await impostor.hear())
        impostor.say(ClientWelcome("s1", "flat", 0, 0, 0, 1, bytes(32)))
        await impostor.ended()
        impostor.close()

    async with await asyncio.start_server(pose, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(Refusal, match="whoever answers there does not know it"):
            async with thence.connect(f"thence://127.0.0.1:{port}", "ann", token=str(new_token("ann"))):
                pass
    assert [type(said) for said in heard] == [ClientHello, Proof][: len(heard)]
    assert len(heard) == 1 + asks


async def test_a_server_without_an_access_file_is_no_place_for_a_token() -> None:
    topology = flat("s1")
    async with servers(topology):
        with pytest.raises(Refusal, match="this client has a token, and whoever answers there does not know it"):
            async with thence.connect(url(topology, "s1"), "ann", token=str(new_token("ann"))):
                pass


# --- what each may do ------------------------------------------------------------------------------------------------

Act = Callable[[thence.Client], Awaitable[object]]

ACTS: dict[str, tuple[Act, str, dict[str, Any]]] = {
    "send": (lambda client: client.send("bob", b""), "write to 'bob'", {"send": ["bob"]}),
    "send to several": (lambda client: client.send(["ann", "bob"], b""), "write to 'bob'", {"send": ["*"]}),
    "publish": (lambda client: client.publish("news", b""), "publish on 'news'", {"publish": ["news"]}),
    "subscribe": (lambda client: client.subscribe("news"), "follow 'news'", {"subscribe": ["n*"]}),
    "broadcast": (lambda client: client.send(thence.EVERYONE, b""), "write to everyone", {"broadcast": True}),
    "look for": (lambda client: client.known("bob"), "write to 'bob'", {"send": ["bob"]}),
    "status": (lambda client: client.status(), "ask how the server is", {"status": True}),
    "agents": (lambda client: client.agents.list(), "see to agents", {"agents": True}),
    "topology": (lambda client: client.ask_view(ViewRequest("ask")), "lead a change of the fabric", {"topology": True}),
}
"""What a client does, what it is told that it may not, and what lets it."""


@pytest.mark.parametrize(("act", "what", "lets"), ACTS.values(), ids=ACTS)
async def test_what_is_not_allowed_is_refused_and_all_else_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, act: Act, what: str, lets: dict[str, Any]
) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"send": ["ann"]}, lucky={"send": ["lucky"], **lets}, bob=EVERYTHING)
    async with (
        servers(topology, access=access.path) as running,
        thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]),
        thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
        thence.connect(url(topology, "s1"), "lucky", token=access.tokens["lucky"]) as lucky,
    ):
        await ann.send("ann", b"before")
        with pytest.raises(NotAllowed, match=f"the access file does not let 'ann' {what}"):
            await act(ann)
        await ann.send("ann", b"behind")
        assert [(await ann.receive()).body for _ in range(2)] == [b"before", b"behind"]
        mailboxes, followers = running["s1"].node.directory.state.mailboxes, running["s1"].node.directory.state.followers
        assert mailboxes["bob"].position == 0, "nothing of it came to anybody"
        assert not followers
        await act(lucky)
    assert complained(caplog, f"client 'ann': the access file does not let 'ann' {what}")
    assert not complained(caplog, "client 'lucky'")


async def test_messages_posted_without_leave_are_told_of_and_others_are_not_held_up(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"send": ["ann"]}, bob={})
    async with (
        servers(topology, access=access.path),
        thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]),
        thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
    ):
        told: list[str] = []

        def note(reason: str) -> None:
            told.append(reason)

        ann.refused = note  # type: ignore[method-assign]
        for number in range(100):
            ann.post("ann" if number % 2 else "bob", b"%d" % number)
        await ann.flush()
        assert told == ["the access file does not let 'ann' write to 'bob'"] * 50
        assert [int((await ann.receive()).body) for _ in range(50)] == list(range(1, 100, 2))


async def test_a_topic_is_no_way_to_somebody_whom_one_may_not_write_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"publish": ["news"]}, bob=EVERYTHING)
    token = parse_token(access.tokens["ann"])
    async with (
        servers(topology, access=access.path) as running,
        thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]) as bob,
    ):
        await bob.subscribe("news")
        ann = await Speaker.call(topology.addresses["s1"])
        await prove(ann, "ann", token)
        ann.say(Publish(1, 1, ("bob",), "news", write_messages([BatchItem(b"by the side door")])))
        assert await ann.ended()
        ann.close()
        assert running["s1"].node.directory.state.mailboxes["bob"].position == 0
    assert complained(caplog, "client 'ann': messages 1 to 1 of 'ann' name nobody, somebody twice, or a topic too")


async def test_the_server_of_the_sender_decides_and_the_others_trust_it(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1", "s2")
    here = Access(tmp_path / "s1.toml", ann={"send": ["bob"]})
    there = Access(tmp_path / "s2.toml", bob={})
    first = await started(topology, "s1", tls=tls["s1"], access=here.path)
    second = await started(topology, "s2", tls=tls["s2"], access=there.path)
    authority = tmp_path / "tls" / "authority.pem"
    try:
        async with (
            thence.connect(secure_url(topology, "s1"), "ann", token=here.tokens["ann"], authority=authority) as ann,
            thence.connect(secure_url(topology, "s2"), "bob", token=there.tokens["bob"], authority=authority) as bob,
        ):
            await ann.known("bob")
            await ann.send("bob", b"over two servers")
            assert (await bob.receive()).body == b"over two servers"
            with pytest.raises(NotAllowed, match="does not let 'bob' write to 'ann'"):
                await bob.send("ann", b"?")
        with pytest.raises(Refusal, match="the token of 'ann' is not right"):
            async with thence.connect(secure_url(topology, "s2"), "ann", token=here.tokens["ann"], authority=authority):
                pass
    finally:
        await first.stop(drain_s=0)
        await second.stop(drain_s=0)


async def test_who_may_lead_changes_of_an_embedded_member(tmp_path: Path) -> None:
    topology = flat("a")
    access = Access(tmp_path / "access.toml", ann={"topology": True}, bob={"status": True})
    async with thence.Member(topology, name="a", access=access.path):
        address = url(topology, "a")
        async with Client(address, "", token=access.tokens["ann"]) as ann:
            assert (await ann.ask_view(ViewRequest("ask"))).server == "a"
        for token, why in ((access.tokens["bob"], "does not let 'bob' lead a change"), (None, "a wants a token")):
            with pytest.raises(Refusal, match=why):
                async with Client(address, "", token=token):
                    pass


@pytest.mark.parametrize("known", [True, False], ids=["from a file", "asked for"])
async def test_whoever_may_not_change_the_fabric_is_told_which_right_it_lacks(tmp_path: Path, known: bool) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", bob={"status": True})
    (tmp_path / "now.toml").write_text(write(topology), encoding="utf-8")
    (tmp_path / "next.toml").write_text(write(topology).replace("[domains", "version = 2\n[domains", 1), encoding="utf-8")
    command = ["topology", "apply", str(tmp_path / "next.toml"), *(["--from", str(tmp_path / "now.toml")] if known else [])]
    async with servers(topology, access=access.path):
        for token, why in (
            (
                ["--token", access.tokens["bob"]],
                "the access file does not let 'bob' lead a change of the fabric (topology = true)",
            ),
            ([], "s1 wants a token"),
        ):
            ended = await asyncio.to_thread(run_cli, *command, *token)
            said = f"nothing was changed, since it is not allowed: s1: {url(topology, 's1')}: {why}"
            assert (ended.code, ended.err.split("thence: error: ")[1].strip()) == (2, said)


# --- while it runs ---------------------------------------------------------------------------------------------------


async def test_a_changed_file_holds_at_once_also_for_those_who_are_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"send": ["*"]}, bob={}, cleo={"names": ["cleo", "clio"]})
    async with (
        servers(topology, access=access.path) as running,
        thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
        thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]) as bob,
        thence.connect(url(topology, "s1"), "clio", token=access.tokens["cleo"]) as clio,
    ):
        await ann.send("bob", b"allowed")
        access.path.write_text("this is no TOML", encoding="utf-8")
        await until(lambda: "what was read before stays in force" in caplog.text)
        await ann.send("bob", b"allowed still")
        assert [(await bob.receive()).body for _ in range(2)] == [b"allowed", b"allowed still"]
        access.write(ann={"send": ["ann"]}, cleo={})
        await until(lambda: "read again" in caplog.text)
        with pytest.raises(NotAllowed, match="does not let 'ann' write to 'bob'"):
            await ann.send("bob", b"no more")
        await ann.send("ann", b"on the same connection")
        with pytest.raises(Refusal, match="the access file has the token of 'bob' no longer"):
            await bob.receive(within=30)
        with pytest.raises(Refusal, match="does not let 'cleo' be called 'clio'"):
            await clio.receive(within=30)
        with pytest.raises(Refusal, match="the token of 'bob' is not right"):
            async with thence.connect(url(topology, "s1"), "bob", token=access.tokens["bob"]):
                pass
        access.write(ann={"send": ["*"]})
        running["s1"].reload()
        await ann.send("bob", b"allowed again")


async def test_two_tokens_while_one_is_replaced(tmp_path: Path) -> None:
    topology = flat("s1")
    old, new = new_token("ann"), new_token("ann")
    path = tmp_path / "access.toml"
    path.write_text(f'[clients.ann]\ntokens = ["{old.verifier()}", "{new.verifier()}"]\n', encoding="utf-8")
    async with servers(topology, access=path) as running:
        async with thence.connect(url(topology, "s1"), "ann", token=str(old)):
            pass
        async with thence.connect(url(topology, "s1"), "ann", token=str(new)) as ann:
            path.write_text(f'[clients.ann]\ntokens = ["{new.verifier()}"]\n', encoding="utf-8")
            running["s1"].reload()
            with pytest.raises(UsageError, match="does not let 'ann' write to 'ann'"):
                await ann.send("ann", b"connected still")
        with pytest.raises(Refusal, match="the token of 'ann' is not right"):
            async with thence.connect(url(topology, "s1"), "ann", token=str(old)):
                pass


# --- where ------------------------------------------------------------------------------------------------------------


async def test_peers_without_proof_are_no_way_around_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1", "s2")
    access = Access(tmp_path / "access.toml", ann={})
    with pytest.raises(ConfigError, match="with an access file and peers a server needs TLS"):
        await started(topology, "s1", access=access.path)
    alone = flat("s1")
    async with servers(alone, access=access.path):
        eve = await Speaker.call(alone.addresses["s1"])
        eve.say(ServerHello(PROTOCOL, "flat", alone.fingerprint, "s2", "s1", "0123"))
        refused = await eve.hear()
        assert isinstance(refused, Refused)
        assert refused.reason == "there is an access file and no TLS here, so no server can prove who it is"
        eve.close()
    assert complained(caplog, "refused server 's2': there is an access file and no TLS here")
    async with servers(topology, access=access.path, insecure=True):
        pass  # That is meant so, then.


async def test_a_server_can_be_reached_from_elsewhere_only_if_that_is_meant(tmp_path: Path) -> None:
    topology = flat("s1").at({"s1": "0.0.0.0:0"})
    access = Access(tmp_path / "access.toml", ann={})
    with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' can be reached from other machines.*--insecure if"):
        await started(topology, "s1")
    with pytest.raises(ConfigError, match="tokens go over TLS only there"):
        await started(topology, "s1", access=access.path, insecure=True)
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        async with thence.Member(topology, name="s1"):
            pass
    meant = await started(topology, "s1", insecure=True)
    await meant.stop(drain_s=0)
    with_tls = await started(topology, "s1", access=access.path, tls=certificates(tmp_path, trustme.CA(), "s1")["s1"])
    await with_tls.stop(drain_s=0)
    with pytest.raises(ConfigError, match="a token goes over TLS only there: use thences://"):
        thence.connect("thence://192.0.2.1:7401", "ann", token=access.tokens["ann"])
