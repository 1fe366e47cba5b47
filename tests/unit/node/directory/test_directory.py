"""The directory: names, topics and mailboxes, as they follow from what is delivered. No member, no network."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from typing import Any

import pytest

from thence.core.wire.messages import Envelope
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.node.directory import closings, directory, subscriptions
from thence.node.directory.directory import Directory, DirectoryChange
from thence.storage import mailbox as mailbox_module
from thence.storage.bodies import Body, Closing, Follows, Joined, Known, Left, read_body, write_body
from thence.storage.mailbox import Batch
from thence.storage.mailbox_spill import MailboxReader

SERVERS = ("s1", "s2", "s3")


def told(where: Directory, body: Body, number: int = 1) -> DirectoryChange:
    """Deliver a body there."""
    return where.deliver(Envelope("s9", number, None, write_body(body)))


def messages(sender: str, *to: str, topic: str | None = None, count: int = 1, first: int = 1) -> Batch:
    return Batch(sender, first, count, to or None, topic, bytes(count))


def opened(*clients: str) -> Directory:
    """Return the directory of s1 with these clients."""
    made = Directory("s1", SERVERS)
    for client in clients:
        told(made, Joined(client, "s1", temporary=False))
    return made


def test_names_and_topics_become_servers() -> None:
    made = opened("ann")
    told(made, Joined("bob", "s2", temporary=False))
    told(made, Follows("bob", "news", wanted=True))
    assert made.route(messages("ann", "bob")) == ("s2",)
    assert made.route(messages("ann", "bob", "ann")) == ("s1", "s2")
    assert made.route(messages("ann")) is None
    assert made.route(messages("ann", topic="news")) == ("s2",)
    assert made.route(messages("ann", topic="sport")) == ()
    with pytest.raises(UsageError, match="nobody is called 'eve', as far as 's1' knows"):
        made.route(messages("ann", "eve"))
    told(made, Left("bob", "s2"))
    assert made.route(messages("ann", topic="news")) == ()


def test_messages_go_into_the_mailboxes_of_those_they_are_for() -> None:
    made = opened("ann", "bob", "eve")
    told(made, Follows("eve", "news", wanted=True))
    assert told(made, messages("x", "ann", "elsewhere")).mailboxes == ("ann",)
    assert told(made, messages("x", topic="news")).mailboxes == ("eve",)
    assert told(made, messages("x", count=3)).mailboxes == ("ann", "bob", "eve")
    assert [mailbox.position for mailbox in made.state.mailboxes.values()] == [4, 3, 4]


def test_a_server_without_a_program_keeps_nothing_for_it() -> None:
    made = opened("ann")
    assert told(made, messages("x", "s1")).mailboxes == ()
    assert list(made.state.mailboxes) == ["ann"]
    with pytest.raises(UsageError, match="'s1' is a server in which no program runs"):
        made.route(messages("ann", "s1"))
    assert made.route(messages("ann", "s2")) == ("s2",), "there may be one in it"
    with_program = Directory("s1", SERVERS, embedded=True)
    assert with_program.route(messages("s1", "s1")) == ("s1",)
    assert told(with_program, messages("x", "s1")).mailboxes == ("s1",)


@pytest.fixture
def _bytes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MIN_BATCH_BYTES", 0)
    monkeypatch.setattr(mailbox_module, "MIN_MESSAGE_BYTES", 0)


@pytest.mark.usefixtures("_bytes_as_they_are")
def test_a_mailbox_forgets_batches_that_are_wholly_done() -> None:
    made = opened("ann")
    for _ in range(3):
        told(made, messages("x", "ann", count=4))
    mailbox = made.state.mailboxes["ann"]
    made.mailboxes.acknowledge("ann", 6)
    assert (mailbox.acknowledged, mailbox.front, sorted(mailbox.waiting), mailbox.bytes) == (6, 5, [5, 9], 8)
    assert MailboxReader(None, "ann").behind(mailbox, 8) == (9, mailbox.waiting[9])
    made.mailboxes.acknowledge("ann", 5)  # Late, and nothing new.
    made.mailboxes.acknowledge("ann", 99)  # More than there is.
    assert (mailbox.acknowledged, mailbox.waiting, mailbox.bytes) == (12, {}, 0)


def closed_now(made: Directory) -> list[str]:
    assert made.mailboxes.full == ""
    return list(made.mailboxes.closed)


def closed_to(made: Directory, batch: Batch) -> str:
    return made.closings.to(batch, made.subscriptions)


def test_a_mailbox_is_closed_until_half_of_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 4)
    made = opened("ann", "bob")
    told(made, messages("x", "ann", count=3))
    assert closed_now(made) == []
    told(made, messages("x", "ann"))
    assert (closed_now(made), closed_to(made, messages("x", "bob", "ann")), closed_to(made, messages("x", "bob"))) == (
        ["ann"],
        "ann",
        "",
    )
    told(made, messages("x", "bob", count=4))
    made.mailboxes.acknowledge("ann", 1)
    assert closed_now(made) == ["ann", "bob"]
    made.mailboxes.acknowledge("ann", 2)
    assert closed_now(made) == ["bob"]
    told(made, Left("bob", "s1"))
    assert closed_now(made) == [], "what waited for it is gone with it"


def in_memory(made: Directory) -> int:
    """Return what all mailboxes have in memory, counted anew."""
    counted = sum(len(batch.messages) for mailbox in made.state.mailboxes.values() for batch in mailbox.waiting.values())
    assert made.mailboxes.in_memory == counted
    return counted


@pytest.mark.usefixtures("_bytes_as_they_are")
def test_a_mailbox_has_a_multiple_of_what_is_left_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 100)
    made = opened("ann", "bob", "cid")
    mailboxes = made.mailboxes

    def sends(name: str, count: int = 1) -> bool:
        """Send as many bytes to somebody; return whether they were taken."""
        try:
            room = mailboxes.reserve(messages("x", name, count=count))
        except Busy:
            return False
        told(made, messages("x", name, count=count))
        mailboxes.arrived(room)
        return True

    assert sends("ann", 80), "four fifths are for one alone"
    assert not sends("ann")
    assert sends("somebody elsewhere", 100)
    assert sends("bob", 10)
    assert not sends("bob", 10), "less is left, and its part is smaller"
    assert (closed_now(made), mailboxes.refused) == (["ann", "bob"], {"ann", "bob"})
    mailboxes.acknowledge("ann", 80)
    assert mailboxes.reserve(messages("x", "cid", count=70)) == 70
    assert not sends("bob", 20), "what is on its way counts"
    mailboxes.arrived(70)
    assert sends("bob", 20)


def test_a_mailbox_keeps_no_names_of_many_others() -> None:
    made = opened("ann", "bob")
    others = tuple(f"c{number}" for number in range(1_000))
    for to, kept in ((("ann", "bob"), ("ann", "bob")), (("ann", "bob", *others), ("ann",))):
        told(made, messages("x", *to))
        assert list(made.state.mailboxes["ann"].waiting.values())[-1].to == kept


@pytest.mark.usefixtures("_bytes_as_they_are")
def test_all_mailboxes_together_have_so_much_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 100)
    made = opened("ann", "bob", "cid")
    told(made, messages("x", "ann", count=80))
    assert (in_memory(made), made.mailboxes.used, closed_now(made)) == (80, 80, [])
    told(made, messages("x", "ann"))
    assert (in_memory(made), made.mailboxes.used, closed_now(made)) == (81, 80, ["ann"]), "what comes late counts apart"
    assert made.mailboxes.why_closed("ann") == (
        "the mailbox of 'ann' is full: 80 bytes wait in memory in all mailboxes; MAX_MAILBOXES_BYTES is 100"
    )
    told(made, messages("x", "bob", count=15))
    told(made, messages("x", "ann", count=23))
    assert (made.mailboxes.used, closed_now(made)) == (95, ["ann"])
    told(made, messages("x", "bob", count=5))
    assert (made.mailboxes.used, list(made.mailboxes.closed), made.mailboxes.in_the_way) == (95, ["ann", "bob"], "ann")
    assert (made.mailboxes.closed.late, made.mailboxes.full) == (29, "ann"), "a quarter beside the 100 is for both"
    told(made, Closing("s1", ("ann",), closed=True))
    again = opened()
    again.restore(made.snapshot())
    assert (closed_now(again), again.mailboxes.used) == (["ann", "bob"], 100), "as much as may be counts as late"
    for each in (made, again):
        each.mailboxes.acknowledge("ann", 104)
        assert (in_memory(each), closed_now(each)) == (20, ["bob"])
        each.mailboxes.look_for_room()
        assert closed_now(each) == []


def test_a_mailbox_for_which_too_much_comes_late_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 4_000)
    made = opened("agent")
    for _ in range(20):
        told(made, messages("x", "agent"))
    assert made.mailboxes.full == "agent"
    assert "the mailbox of 'agent' is full" in made.mailboxes.why_full
    made.mailboxes.acknowledge("agent", 20)
    assert (made.mailboxes.full, made.mailboxes.why_full, len(made.mailboxes.closed)) == ("", "", 0)


def test_a_server_tells_of_closed_mailboxes_of_its_own_and_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closings, "MAX_CLOSED", 2)
    made = opened("ann")
    for name in ("bob", "cat", "dan"):
        told(made, Joined(name, "s2", temporary=False))
    told(made, Closing("s2", ("ann", "bob", "cat", "dan"), closed=True))
    assert made.closings.closed == {"bob": "s2", "cat": "s2"}
    for name in ("ann", "bob"):
        told(made, Follows(name, "news", wanted=True))
    everyone, on_topic = messages("ann"), messages("ann", topic="news")
    assert (closed_to(made, everyone), closed_to(made, on_topic), closed_to(made, messages("x", "dan"))) == ("bob", "bob", "")
    assert not told(made, Closing("s2", ("bob",), closed=True)).opened
    assert told(made, Closing("s2", ("bob",), closed=False)).opened
    assert (closed_to(made, everyone), closed_to(made, on_topic)) == ("cat", "")
    told(made, Left("cat", "s2"))
    assert closed_to(made, everyone) == ""


def test_a_message_and_a_batch_count_for_what_they_take_at_least() -> None:
    made = opened("ann")
    mailbox = made.state.mailboxes["ann"]
    told(made, messages("x", "ann"))
    assert mailbox.bytes == mailbox_module.MIN_BATCH_BYTES
    told(made, messages("x", "ann", count=1_000))
    assert mailbox.bytes == made.mailboxes.in_memory == mailbox_module.MIN_BATCH_BYTES + 1_000 * mailbox_module.MIN_MESSAGE_BYTES
    made.mailboxes.acknowledge("ann", 1)
    assert mailbox.bytes == made.mailboxes.in_memory == 1_000 * mailbox_module.MIN_MESSAGE_BYTES
    made.mailboxes.acknowledge("ann", 1_001)
    assert mailbox.bytes == made.mailboxes.in_memory == 0


def test_a_snapshot_in_which_messages_count_otherwise_is_counted_anew() -> None:
    """Version 0.1 counted the bytes of the messages alone."""
    made = opened("ann")
    told(made, messages("x", "ann", count=2))
    made.state.mailboxes["ann"].bytes = 2
    again = Directory("s1", SERVERS)
    again.restore(made.snapshot())
    again.mailboxes.acknowledge("ann", 2)
    assert (again.state.mailboxes["ann"].bytes, again.mailboxes.in_memory) == (0, 0)


def test_a_snapshot_is_the_whole_directory() -> None:
    made = opened("ann", "bob")
    told(made, messages("x", "ann", count=2))
    told(made, Follows("bob", "news", wanted=True))
    made.mailboxes.acknowledge("ann", 1)
    again = Directory("s1", SERVERS)
    again.restore(made.snapshot())
    assert again.snapshot() == made.snapshot()
    assert again.state.mailboxes["ann"].waiting[1].messages == made.state.mailboxes["ann"].waiting[1].messages
    with pytest.raises(StorageError, match="a snapshot that cannot be read"):
        again.restore(b"\xc1")


def test_what_no_directory_wrote_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="a message of 's2' that no directory wrote"):
        read_body(b"hello", "s2")


# --- two servers give the same name ----------------------------------------------------------------------------------


def test_the_first_server_has_the_name_and_the_other_takes_its_claim_back() -> None:
    made = Directory("s2", SERVERS)
    told(made, Joined("ann", "s2", temporary=False))
    handed = told(made, Joined("ann", "s1", temporary=False))
    assert (handed.left, handed.yielded, made.home("ann"), made.state.mailboxes) == ("ann", "ann", "s1", {})
    assert made.claims.without(made.state.mailboxes) == ["ann"], "also after a restart"
    told(made, Left("ann", "s2"))
    assert (made.claims.without(made.state.mailboxes), made.home("ann")) == ([], "s1")


def test_a_later_server_does_not_get_the_name() -> None:
    made = opened("ann")
    assert told(made, Joined("ann", "s2", temporary=False)) == DirectoryChange(joined="ann")
    assert (made.home("ann"), list(made.state.mailboxes)) == ("s1", ["ann"])


@pytest.mark.parametrize("seed", range(50))
def test_all_offices_come_to_agree_in_whatever_order_they_hear(seed: int) -> None:
    chance = Random(seed)
    offices = {name: Directory(name, SERVERS) for name in SERVERS}
    on_the_way: dict[tuple[str, str], list[Body]] = {pair: [] for pair in permutations(SERVERS, 2)}

    def say(server: str, body: Body) -> None:
        """Tell it to everyone, ourselves first, as a member does; from one server to another it comes in order."""
        for other in SERVERS:
            if other != server:
                on_the_way[server, other].append(body)
        hear(server, body)

    def hear(server: str, body: Body) -> None:
        if told(offices[server], body).yielded:
            say(server, Left("ann", server))

    for _ in range(30):
        server = chance.choice(SERVERS)
        known = offices[server]
        if "ann" in known.state.mailboxes and chance.random() < 0.5:
            say(server, Left("ann", server))
        elif known.home("ann") in (None, server):
            say(server, Joined("ann", server, temporary=False))
        for pair in chance.sample(list(on_the_way), 3):
            if on_the_way[pair]:
                hear(pair[1], on_the_way[pair].pop(0))
    while pairs := [pair for pair, bodies in on_the_way.items() if bodies]:
        pair = chance.choice(pairs)
        hear(pair[1], on_the_way[pair].pop(0))
    homes = {made.home("ann") for made in offices.values()}
    having = [name for name, made in offices.items() if "ann" in made.state.mailboxes]
    assert len(homes) == 1
    assert having == [home for home in homes if home is not None]


# --- limits ------------------------------------------------------------------------------------------------------------


def asked(made: Directory, body: Body) -> None:
    """Let a directory announce something, as a node does; it is under way then."""
    with made.announcing(body):
        pass


def refused(made: Directory, body: Body) -> None:
    """The same, but there is no room for it."""
    with pytest.raises(Busy), made.announcing(body):
        raise Busy("later")


def test_there_are_so_many_clients_and_known_ones_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_CLIENTS", 3)
    made = opened("ann", "bob")
    told(made, Joined("far", "s2", temporary=False))
    refused(made, Joined("cyd", "s1", temporary=False))
    assert not made.objection("dan")
    asked(made, Joined("cyd", "s1", temporary=False))
    with pytest.raises(UsageError, match="'s1' has 3 clients; MAX_CLIENTS is 3"):
        made.check(Joined("dan", "s1", temporary=False))
    assert [made.objection(name) for name in ("ann", "cyd")] == ["", ""], "who is here or on the way comes in again"
    told(made, Joined("cyd", "s1", temporary=False))
    again = Directory("s1", SERVERS)
    again.restore(made.snapshot())
    for one in (made, again):
        assert "MAX_CLIENTS" in one.objection("dan")
        assert not one.objection("cyd")
    told(made, Joined("eve", "s1", temporary=False))
    assert "eve" in made.state.mailboxes, "what was announced is taken, whatever the limit says: all servers do the same"
    for name in ("cyd", "eve"):
        told(made, Left(name, "s1"))
    assert not made.objection("dan")


@pytest.mark.parametrize(("limit", "most"), [("MAX_SUBSCRIPTIONS_EACH", 3), ("MAX_SUBSCRIPTIONS", 4)])
def test_there_are_so_many_subscriptions(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, limit, most)
    made = opened("ann", "bob")
    told(made, Joined("far", "s2", temporary=False))
    told(made, Follows("far", "news", wanted=True))
    if limit == "MAX_SUBSCRIPTIONS":
        told(made, Follows("bob", "news", wanted=True))
    for topic in ("news", "sport"):
        asked(made, Follows("ann", topic, wanted=True))
        told(made, Follows("ann", topic, wanted=True))
    asked(made, Follows("ann", "art", wanted=True))
    asked(made, Follows("ann", "art", wanted=True))
    with pytest.raises(UsageError, match=f"{limit} is {most}"):
        made.check(Follows("ann", "film", wanted=True))
    for topic in ("news", "art"):
        made.check(Follows("ann", topic, wanted=True))
    told(made, Follows("ann", "art", wanted=True))
    again = Directory("s1", SERVERS)
    again.restore(made.snapshot())
    for one in (made, again):
        with pytest.raises(UsageError, match=limit):
            one.check(Follows("ann", "film", wanted=True))
        told(one, Follows("ann", "art", wanted=False))
        told(one, Follows("ann", "art", wanted=False))
        one.check(Follows("ann", "film", wanted=True))
        refused(one, Follows("ann", "film", wanted=True))
        asked(one, Follows("ann", "opera", wanted=True))
        with pytest.raises(UsageError, match=limit):
            one.check(Follows("ann", "film", wanted=True))
        told(one, Follows("ann", "opera", wanted=True))
        told(one, Left("ann", "s1"))
        told(one, Left("bob", "s1"))
        kept = one.subscriptions
        assert (kept.topics_of("ann"), kept.count, kept.asking, kept.asking_each) == ({}, 0, {}, {})


def test_what_a_name_follows_counts_where_it_is() -> None:
    """Two servers give the same name; what was followed under it stays, at the server that has it in the end."""
    made, other = opened(), Directory("s2", SERVERS)
    for one in (made, other):
        for body in (
            Joined("ann", "s2", temporary=False),
            Follows("ann", "news", wanted=True),
            Joined("ann", "s1", temporary=False),
        ):
            told(one, body)
    assert (list(made.subscriptions.topics_of("ann")), made.subscriptions.count) == (["news"], 1)
    assert (list(other.subscriptions.topics_of("ann")), other.subscriptions.count) == (["news"], 0)


class NeverLookedThrough(dict[str, dict[str, None]]):
    """Topics that nobody goes through one by one."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics were looked at")

    def items(self) -> Any:
        raise AssertionError("all topics were looked at")

    keys = values = items


def test_who_leaves_costs_what_it_follows_and_not_all_topics() -> None:
    made = opened("ann", "bob", "here")
    told(made, Joined("far", "s2", temporary=False))
    for client, topic in (("ann", "news"), ("ann", "art"), ("bob", "news"), ("far", "news"), ("here", "film")):
        told(made, Follows(client, topic, wanted=True))
    made.state.followers = NeverLookedThrough(made.state.followers)
    made.subscriptions.followers = made.state.followers
    film, news = messages("here", topic="film"), messages("here", topic="news")
    assert (made.route(film), made.route(news)) == (("s1",), ("s1", "s2"))
    told(made, Left("ann", "s1"))
    assert "film" in made.routes.by_topic, "what others follow goes the same way as before"
    told(made, Left("bob", "s1"))
    assert (made.route(film), made.route(news)) == (("s1",), ("s2",))
    told(made, Left("far", "s2"))
    assert (made.route(film), made.route(news)) == (("s1",), ())
    assert (len(made.state.followers), "film" in made.state.followers) == (1, True)
    assert made.subscriptions.count == 1


def test_a_name_that_goes_to_another_server_is_published_to_there() -> None:
    made = opened("ann")
    told(made, Joined("bob", "s3", temporary=False))
    told(made, Follows("bob", "news", wanted=True))
    news = messages("ann", topic="news")
    assert made.route(news) == ("s3",)
    told(made, Joined("bob", "s2", temporary=False))
    assert made.route(news) == ("s2",), "the server whose name comes first has it"
    told(made, Left("bob", "s3"))
    assert made.route(news) == ("s2",)


@pytest.mark.parametrize("seed", range(20))
def test_what_clients_follow_is_the_same_both_ways_and_after_a_restart(seed: int) -> None:
    chance, made = Random(seed), opened("ann", "bob")
    for number in range(300):
        client, topic, server = chance.choice("abcdef"), chance.choice(["x", "y", "z"]), chance.choice(SERVERS)
        bodies: list[Body] = [
            Joined(client, server, temporary=False),
            Left(client, server),
            Follows(client, topic, wanted=True),
            Follows(client, topic, wanted=chance.random() < 0.5),
        ]
        told(made, chance.choice(bodies), number)
        if chance.random() < 0.1:
            made.change([name for name in SERVERS if name != "s3"])
        both_ways = {(client, topic) for topic, clients in made.state.followers.items() for client in clients}
        kept = made.subscriptions
        assert {(client, topic) for client in "abcdef" for topic in kept.topics_of(client)} == both_ways
        assert all(made.state.followers.values())
        assert kept.count == sum(client in made.state.mailboxes for client, _ in both_ways)
        for topic in "xyz":
            homes = {made.home(client) for client in kept.followers_of(topic)} - {None}
            assert made.route(messages("ann", topic=topic)) == tuple(sorted(home for home in homes if home)), "as without memory"
    again = Directory("s1", SERVERS)
    again.restore(made.snapshot())
    assert (again.subscriptions.topics, again.subscriptions.count) == (made.subscriptions.topics, made.subscriptions.count)


# --- what other servers tell of ----------------------------------------------------------------------------------------


def told_by(where: Directory, server: str, body: Body) -> DirectoryChange:
    """Deliver a body of another server there."""
    return where.deliver(Envelope(server, 1, None, write_body(body)))


def limited(names_bytes: int = 2**40, topics_bytes: int = 2**40) -> Directory:
    """Return a directory with a client, and little room for what others tell of."""
    made = opened("ann")
    made.limit(2**40, 2**40, 2**40, names_bytes, topics_bytes)
    return made


def test_names_of_another_server_are_bounded_by_bytes_and_those_of_a_third_have_room() -> None:
    made = limited(names_bytes=1_000)
    for number in range(100):
        told_by(made, "s2", Joined(f"client {number}", "s2", temporary=False))
    known = [name for name in made.state.claims if name.startswith("client")]
    assert 2 <= len(known) <= 4
    assert made.claims.left_out == 100 - len(known)
    with pytest.raises(UsageError, match="nobody is called 'client 99'"):
        made.route(messages("ann", "client 99"))
    told_by(made, "s3", Joined("bob", "s3", temporary=False))
    assert made.route(messages("ann", "bob")) == ("s3",)
    told_by(made, "s2", Joined("ann", "s2", temporary=False))
    assert made.state.claims["ann"] == ["s1", "s2"], "who has a name that somebody has is known to all"
    for name in ("ann", *known):
        told_by(made, "s2", Left(name, "s2"))
    assert made.claims.announced["s2"] == 0
    told_by(made, "s2", Known("s2", {f"again {number}": False for number in range(100)}, []))
    assert [name for name in made.state.claims if name.startswith("again")] == [f"again {number}" for number in range(len(known))]
    again = limited(names_bytes=1_000)
    again.restore(made.snapshot())
    assert again.claims.announced["s2"] == made.claims.announced["s2"] > 0
    again.change(("s1", "s3"))
    assert again.claims.announced["s2"] == 0


@pytest.mark.parametrize("known", [False, True])
def test_a_server_whose_subscriptions_are_too_many_follows_everything(known: bool) -> None:
    made = limited(topics_bytes=2_000)
    topics = [f"topic {number}" for number in range(100)]
    told_by(made, "s2", Joined("bob", "s2", temporary=False))
    told_by(made, "s3", Joined("cid", "s3", temporary=False))
    told_by(made, "s3", Follows("cid", "topic 99", wanted=True))
    assert made.route(messages("ann", topic="topic 99")) == ("s3",)
    if known:
        told_by(made, "s2", Known("s2", {}, [("bob", topic) for topic in topics]))
    else:
        for topic in topics:
            told_by(made, "s2", Follows("bob", topic, wanted=True))
    assert len(made.state.followers) < 10
    again = limited(topics_bytes=2_000)
    again.restore(made.snapshot())
    for one in (made, again):
        assert {one.route(messages("ann", topic=topic)) for topic in topics[:99]} == {("s2",)}
        assert one.route(messages("ann", topic="topic 99")) == ("s2", "s3")
        assert len(one.routes.by_topic) < 10, "what nobody follows is not remembered"
        assert one.subscriptions.announced["s2"] <= 2_000
    told_by(made, "s2", Left("bob", "s2"))
    assert made.subscriptions.announced["s2"] == 0
    made.change(("s1", "s3"))
    assert made.route(messages("ann", topic="topic 1")) == ()
