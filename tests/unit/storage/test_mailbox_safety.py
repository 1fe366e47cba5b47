"""Which messages in mailboxes are safe, and who waits for that, step by step."""

from __future__ import annotations

import pytest

from thence.client.parts import safe_waits
from thence.client.parts.safe_waits import SafeWaits
from thence.client.parts.state import EndpointState
from thence.core.topology.toml import parse
from thence.errors import Busy, StorageError, UsageError
from thence.storage.mailbox_safety import MailboxSafety, why_unknown


def test_the_last_messages_of_a_mailbox_are_those_that_are_not_safe() -> None:
    safety = MailboxSafety()
    safety.delivered(1, 2, ("ann", "bob"))
    safety.delivered(2, 1, ("bob",))
    safety.delivered(3, 5, ())
    assert [safety.unsafe_of(name) for name in ("ann", "bob", "cleo")] == [2, 3, 0]
    assert safety.messages == 5
    assert list(safety.safe(1)) == ["ann", "bob"]
    assert [safety.unsafe_of(name) for name in ("ann", "bob")] == [0, 1]
    assert list(safety.safe(1)) == []
    assert list(safety.safe(9)) == ["bob"]
    assert safety.messages == 0


def test_what_is_handed_over_when_it_is_safe_already_is_not_noted() -> None:
    safety = MailboxSafety()
    safety.safe(4)
    safety.delivered(4, 1, ("ann",))
    safety.delivered(5, 1, ("ann",))
    assert safety.unsafe_of("ann") == 1


def test_whoever_has_a_name_next_begins_with_nothing() -> None:
    safety = MailboxSafety()
    safety.delivered(1, 2, ("ann", "bob"))
    safety.forget("ann")
    safety.delivered(2, 1, ("ann",))
    assert list(safety.safe(1)) == ["bob"]
    assert safety.unsafe_of("ann") == 1


def test_a_restart_finds_it_again() -> None:
    safety, again, older = MailboxSafety(), MailboxSafety(), MailboxSafety()
    safety.delivered(3, 2, ("ann", "bob"))
    safety.safe(2)
    safety.delivered(4, 1, ("bob",))
    again.restore(safety.snapshot())
    assert again.snapshot() == safety.snapshot()
    assert (again.upto, again.unsafe_of("bob"), again.messages) == (2, 3, 5)
    older.restore(b"")
    assert older.messages == 0
    with pytest.raises(StorageError, match="what is safe that cannot be read"):
        older.restore(b"\xff")


def test_a_server_tells_if_all_its_domains_find_out() -> None:
    def fabric(left: str, right: str) -> str:
        ways = {"A": ('"a", "r"', left), "B": ('"r", "b"', right)}
        domains = [f'[domains.{name}]\nmembers = [{members}]\ndelivery = "{way}"\n' for name, (members, way) in ways.items()]
        return 'name = "f"\n' + "".join(domains)

    mixed, told = parse(fabric("notify", "at once")), parse(fabric("notify", "safe"))
    assert [why_unknown(told, name) for name in ("a", "r", "b")] == ["", "", ""]
    assert why_unknown(mixed, "a") == ""
    assert "domain 'B' of 'f'" in why_unknown(mixed, "r")
    assert why_unknown(mixed, "gone") == "'gone' has left the fabric 'f'"


async def test_those_who_wait_are_told_in_their_turn() -> None:
    awaited = SafeWaits(EndpointState("me"))
    third, first, second = (awaited.waiter(position) for position in (3, 1, 2))
    assert not awaited.knows(0)
    assert not awaited.advance(0, "")
    assert awaited.knows(0)
    first.cancel()
    assert awaited.advance(2, "")
    assert second.done()
    assert not third.done()
    assert not awaited.advance(1, ""), "another connection may know of less"
    assert awaited.upto == 2
    assert not awaited.advance(2, "nobody finds out any more")
    assert isinstance(third.exception(), UsageError)
    assert awaited.knows(2), "what was safe stays so"
    assert not awaited.knows(0)


async def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_waits, "MAX_AWAITED", 2)
    awaited = SafeWaits(EndpointState("me"))
    waiters = [awaited.waiter(position) for position in (1, 2)]
    with pytest.raises(Busy, match="2 calls of 'me' wait for messages to be safe; MAX_AWAITED is 2"):
        await awaited.waiter(3)
    awaited.fail(UsageError("closed"))
    assert [str(waiter.exception()) for waiter in waiters] == ["closed", "closed"]
