"""Which letters in boxes are safe, and who waits for that, step by step."""

from __future__ import annotations

import asyncio

import pytest

from thence.core.topology_text import parse
from thence.errors import Busy, StorageError, UsageError
from thence.runtime import awaiting
from thence.runtime.awaiting import Awaited
from thence.runtime.safety import BoxSafety, why_untold


def test_the_last_letters_of_a_box_are_those_that_are_not_safe() -> None:
    safety = BoxSafety()
    safety.delivered(1, 2, ("ann", "bob"))
    safety.delivered(2, 1, ("bob",))
    safety.delivered(3, 5, ())
    assert [safety.unsafe_of(name) for name in ("ann", "bob", "cleo")] == [2, 3, 0]
    assert safety.letters == 5
    assert list(safety.safe(1)) == ["ann", "bob"]
    assert [safety.unsafe_of(name) for name in ("ann", "bob")] == [0, 1]
    assert list(safety.safe(1)) == []
    assert list(safety.safe(9)) == ["bob"]
    assert safety.letters == 0


def test_what_is_handed_over_when_it_is_safe_already_is_not_noted() -> None:
    safety = BoxSafety()
    safety.safe(4)
    safety.delivered(4, 1, ("ann",))
    safety.delivered(5, 1, ("ann",))
    assert safety.unsafe_of("ann") == 1


def test_whoever_has_a_name_next_begins_with_nothing() -> None:
    safety = BoxSafety()
    safety.delivered(1, 2, ("ann", "bob"))
    safety.forget("ann")
    safety.delivered(2, 1, ("ann",))
    assert list(safety.safe(1)) == ["bob"]
    assert safety.unsafe_of("ann") == 1


def test_a_restart_finds_it_again() -> None:
    safety, again, older = BoxSafety(), BoxSafety(), BoxSafety()
    safety.delivered(3, 2, ("ann", "bob"))
    safety.safe(2)
    safety.delivered(4, 1, ("bob",))
    again.restore(safety.snapshot())
    assert again.snapshot() == safety.snapshot()
    assert (again.upto, again.unsafe_of("bob"), again.letters) == (2, 3, 5)
    older.restore(b"")
    assert older.letters == 0
    with pytest.raises(StorageError, match="what is safe that cannot be read"):
        older.restore(b"\xff")


def test_a_server_tells_if_all_its_domains_find_out() -> None:
    def fabric(left: str, right: str) -> str:
        ways = {"A": ('"a", "r"', left), "B": ('"r", "b"', right)}
        domains = [f'[domains.{name}]\nmembers = [{members}]\ndelivery = "{way}"\n' for name, (members, way) in ways.items()]
        return 'name = "f"\n' + "".join(domains)

    mixed, told = parse(fabric("notify", "at once")), parse(fabric("notify", "safe"))
    assert [why_untold(told, name) for name in ("a", "r", "b")] == ["", "", ""]
    assert why_untold(mixed, "a") == ""
    assert "domain 'B' of 'f'" in why_untold(mixed, "r")
    assert why_untold(mixed, "gone") == "'gone' has left the fabric 'f'"


def test_those_who_wait_are_told_in_their_turn() -> None:
    async def main() -> None:
        awaited = Awaited()
        third, first, second = (awaited.waiter(position, "me") for position in (3, 1, 2))
        assert not awaited.knows(0)
        assert not awaited.told(0, "")
        assert awaited.knows(0)
        first.cancel()
        assert awaited.told(2, "")
        assert second.done()
        assert not third.done()
        assert not awaited.told(1, ""), "another connection may know of less"
        assert awaited.upto == 2
        assert not awaited.told(2, "nobody finds out any more")
        assert isinstance(third.exception(), UsageError)
        assert awaited.knows(2), "what was safe stays so"
        assert not awaited.knows(0)

    asyncio.run(main())


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(awaiting, "MAX_AWAITED", 2)
        awaited = Awaited()
        waiters = [awaited.waiter(position, "me") for position in (1, 2)]
        with pytest.raises(Busy, match="2 calls of 'me' wait for messages to be safe; MAX_AWAITED is 2"):
            await awaited.waiter(3, "me")
        awaited.fail(UsageError("closed"))
        assert [str(waiter.exception()) for waiter in waiters] == ["closed", "closed"]

    asyncio.run(main())
