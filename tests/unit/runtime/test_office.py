"""The office: names, topics and boxes, as they follow from what is delivered. No member, no network."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from typing import Any

import pytest

from thence.core.messages import Envelope
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.runtime import boxes, office, subscriptions
from thence.runtime.boxes import Bundle
from thence.runtime.office import Body, Follows, Handed, Joined, Left, Office, read_body, write_body
from thence.runtime.spill import Reader

SERVERS = ("s1", "s2", "s3")


def told(where: Office, body: Body, number: int = 1) -> Handed:
    """Deliver a body there."""
    return where.deliver(Envelope("s9", number, None, write_body(body)))


def letters(sender: str, *to: str, topic: str | None = None, count: int = 1, first: int = 1) -> Bundle:
    return Bundle(sender, first, count, to or None, topic, bytes(count))


def opened(*clients: str) -> Office:
    """Return the office of s1 with these clients."""
    made = Office("s1", SERVERS)
    for client in clients:
        told(made, Joined(client, "s1", temporary=False))
    return made


def test_names_and_topics_become_servers() -> None:
    made = opened("ann")
    told(made, Joined("bob", "s2", temporary=False))
    told(made, Follows("bob", "news", wanted=True))
    assert made.route(letters("ann", "bob")) == ("s2",)
    assert made.route(letters("ann", "bob", "ann")) == ("s1", "s2")
    assert made.route(letters("ann")) is None
    assert made.route(letters("ann", topic="news")) == ("s2",)
    assert made.route(letters("ann", topic="sport")) == ()
    with pytest.raises(UsageError, match="nobody is called 'eve', as far as 's1' knows"):
        made.route(letters("ann", "eve"))
    told(made, Left("bob", "s2"))
    assert made.route(letters("ann", topic="news")) == ()


def test_letters_go_into_the_boxes_of_those_they_are_for() -> None:
    made = opened("ann", "bob", "eve")
    told(made, Follows("eve", "news", wanted=True))
    assert told(made, letters("x", "ann", "elsewhere")).boxes == ("ann",)
    assert told(made, letters("x", topic="news")).boxes == ("eve",)
    assert told(made, letters("x", count=3)).boxes == ("ann", "bob", "eve")
    assert [box.position for box in made.state.boxes.values()] == [4, 3, 4]


def test_a_server_without_a_program_keeps_nothing_for_it() -> None:
    made = opened("ann")
    assert told(made, letters("x", "s1")).boxes == ()
    assert list(made.state.boxes) == ["ann"]
    with pytest.raises(UsageError, match="'s1' is a server in which no program runs"):
        made.route(letters("ann", "s1"))
    assert made.route(letters("ann", "s2")) == ("s2",), "there may be one in it"
    with_program = Office("s1", SERVERS, embedded=True)
    assert with_program.route(letters("s1", "s1")) == ("s1",)
    assert told(with_program, letters("x", "s1")).boxes == ("s1",)


@pytest.fixture
def _bytes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "MIN_BUNDLE_BYTES", 0)
    monkeypatch.setattr(boxes, "MIN_LETTER_BYTES", 0)


@pytest.mark.usefixtures("_bytes_as_they_are")
def test_a_box_forgets_bundles_that_are_wholly_done() -> None:
    made = opened("ann")
    for _ in range(3):
        told(made, letters("x", "ann", count=4))
    box = made.state.boxes["ann"]
    made.acknowledge("ann", 6)
    assert (box.acknowledged, box.front, sorted(box.waiting), box.bytes) == (6, 5, [5, 9], 8)
    assert Reader(None, "ann").behind(box, 8) == (9, box.waiting[9])
    made.acknowledge("ann", 5)  # Late, and nothing new.
    made.acknowledge("ann", 99)  # More than there is.
    assert (box.acknowledged, box.waiting, box.bytes) == (12, {}, 0)


def full_now(made: Office) -> str:
    return made.full


def test_a_full_box_is_named_until_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "MAX_BOX_LETTERS", 3)
    made = opened("ann", "bob")
    assert full_now(made) == ""
    told(made, letters("x", "ann", count=3))
    assert full_now(made) == "ann"
    told(made, letters("x", "bob", count=3))
    made.acknowledge("ann", 1)
    assert full_now(made) == "bob"
    told(made, Left("bob", "s1"))
    assert full_now(made) == "", "what waited for it is gone with it"


def in_memory(made: Office) -> int:
    """Return what all boxes have in memory, counted anew."""
    counted = sum(len(bundle.letters) for box in made.state.boxes.values() for bundle in box.waiting.values())
    assert made.in_memory == counted
    return counted


@pytest.mark.usefixtures("_bytes_as_they_are")
def test_all_boxes_together_have_so_much_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "MAX_BOXES_BYTES", 10)
    made = opened("ann", "bob", "cid")
    told(made, letters("x", "ann", count=7))
    told(made, letters("x", "bob", "ann", count=1))
    assert (in_memory(made), full_now(made)) == (9, "")
    told(made, letters("x", "cid"))
    assert (in_memory(made), full_now(made)) == (10, "cid")
    assert made.why_full == "10 bytes wait in memory in all boxes, most of them for 'ann'; MAX_BOXES_BYTES is 10"
    again = opened()
    again.restore(made.snapshot())
    for each in (made, again):
        assert full_now(each)
        each.acknowledge("bob", 1)
        assert (in_memory(each), full_now(each), each.why_full) == (9, "", "")
        told(each, letters("x", "bob", count=2))
        assert full_now(each) == "bob"
        told(each, Left("ann", "s1"))
        each.acknowledge("bob", 1)
        assert (in_memory(each), full_now(each)) == (3, ""), "a letter of the last bundle is not done with"


def test_a_letter_and_a_bundle_count_for_what_they_take_at_least() -> None:
    made = opened("ann")
    box = made.state.boxes["ann"]
    told(made, letters("x", "ann"))
    assert box.bytes == boxes.MIN_BUNDLE_BYTES
    told(made, letters("x", "ann", count=1_000))
    assert box.bytes == made.in_memory == boxes.MIN_BUNDLE_BYTES + 1_000 * boxes.MIN_LETTER_BYTES
    made.acknowledge("ann", 1)
    assert box.bytes == made.in_memory == 1_000 * boxes.MIN_LETTER_BYTES
    made.acknowledge("ann", 1_001)
    assert box.bytes == made.in_memory == 0


def test_a_snapshot_in_which_letters_count_otherwise_is_counted_anew() -> None:
    """Version 0.1 counted the bytes of the letters alone."""
    made = opened("ann")
    told(made, letters("x", "ann", count=2))
    made.state.boxes["ann"].bytes = 2
    again = Office("s1", SERVERS)
    again.restore(made.snapshot())
    again.acknowledge("ann", 2)
    assert (again.state.boxes["ann"].bytes, again.in_memory) == (0, 0)


def test_a_snapshot_is_the_whole_office() -> None:
    made = opened("ann", "bob")
    told(made, letters("x", "ann", count=2))
    told(made, Follows("bob", "news", wanted=True))
    made.acknowledge("ann", 1)
    again = Office("s1", SERVERS)
    again.restore(made.snapshot())
    assert again.snapshot() == made.snapshot()
    assert again.state.boxes["ann"].waiting[1].letters == made.state.boxes["ann"].waiting[1].letters
    with pytest.raises(StorageError, match="a snapshot that cannot be read"):
        again.restore(b"\xc1")


def test_what_no_office_wrote_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="a message of 's2' that no office wrote"):
        read_body(b"hello", "s2")


# --- two servers give the same name ----------------------------------------------------------------------------------


def test_the_first_server_has_the_name_and_the_other_takes_its_claim_back() -> None:
    made = Office("s2", SERVERS)
    told(made, Joined("ann", "s2", temporary=False))
    handed = told(made, Joined("ann", "s1", temporary=False))
    assert (handed.left, handed.yielded, made.home("ann"), made.state.boxes) == ("ann", "ann", "s1", {})
    assert made.yielded() == ["ann"], "also after a restart"
    told(made, Left("ann", "s2"))
    assert (made.yielded(), made.home("ann")) == ([], "s1")


def test_a_later_server_does_not_get_the_name() -> None:
    made = opened("ann")
    assert told(made, Joined("ann", "s2", temporary=False)) == Handed(joined="ann")
    assert (made.home("ann"), list(made.state.boxes)) == ("s1", ["ann"])


@pytest.mark.parametrize("seed", range(50))
def test_all_offices_come_to_agree_in_whatever_order_they_hear(seed: int) -> None:
    chance = Random(seed)
    offices = {name: Office(name, SERVERS) for name in SERVERS}
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
        if "ann" in known.state.boxes and chance.random() < 0.5:
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
    having = [name for name, made in offices.items() if "ann" in made.state.boxes]
    assert len(homes) == 1
    assert having == [home for home in homes if home is not None]


# --- limits ------------------------------------------------------------------------------------------------------------


def asked(made: Office, body: Body) -> None:
    """Let an office announce something, as a node does; it is under way then."""
    with made.announcing(body):
        pass


def refused(made: Office, body: Body) -> None:
    """The same, but there is no room for it."""
    with pytest.raises(Busy), made.announcing(body):
        raise Busy("later")


def test_there_are_so_many_clients_and_known_ones_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_CLIENTS", 3)
    made = opened("ann", "bob")
    told(made, Joined("far", "s2", temporary=False))
    refused(made, Joined("cyd", "s1", temporary=False))
    assert not made.objection("dan")
    asked(made, Joined("cyd", "s1", temporary=False))
    with pytest.raises(UsageError, match="'s1' has 3 clients; MAX_CLIENTS is 3"):
        made.check(Joined("dan", "s1", temporary=False))
    assert [made.objection(name) for name in ("ann", "cyd")] == ["", ""], "who is here or on the way comes in again"
    told(made, Joined("cyd", "s1", temporary=False))
    again = Office("s1", SERVERS)
    again.restore(made.snapshot())
    for one in (made, again):
        assert "MAX_CLIENTS" in one.objection("dan")
        assert not one.objection("cyd")
    told(made, Joined("eve", "s1", temporary=False))
    assert "eve" in made.state.boxes, "what was announced is taken, whatever the limit says: all servers do the same"
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
    again = Office("s1", SERVERS)
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
        assert (kept.topics_of("ann"), kept.count, kept._asking, kept._asking_each) == ({}, 0, {}, {})


def test_what_a_name_follows_counts_where_it_is() -> None:
    """Two servers give the same name; what was followed under it stays, at the server that has it in the end."""
    made, other = opened(), Office("s2", SERVERS)
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
    made.subscriptions._followers = made.state.followers
    film, news = letters("here", topic="film"), letters("here", topic="news")
    assert (made.route(film), made.route(news)) == (("s1",), ("s1", "s2"))
    told(made, Left("ann", "s1"))
    assert "film" in made._routes, "what others follow goes the same way as before"
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
    news = letters("ann", topic="news")
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
        assert kept.count == sum(client in made.state.boxes for client, _ in both_ways)
        for topic in "xyz":
            homes = {made.home(client) for client in kept.followers_of(topic)} - {None}
            assert made.route(letters("ann", topic=topic)) == tuple(sorted(home for home in homes if home)), "as without memory"
    again = Office("s1", SERVERS)
    again.restore(made.snapshot())
    assert (again.subscriptions._topics, again.subscriptions.count) == (made.subscriptions._topics, made.subscriptions.count)
