"""What is kept of rejected messages: the same numbers as if all of it were kept, and little."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from thence.storage import rejections
from thence.storage.mailbox import Mailbox
from thence.storage.rejections import FORGOTTEN, KEEP_REJECTED, MAX_REASONS, Rejected, note, runs


def numbers(known: list[Rejected]) -> list[int]:
    return [number for run in runs(known) for number in range(run.first, run.last + 1)]


@pytest.mark.parametrize("seed", range(30))
def test_the_numbers_are_those_that_were_rejected_however_little_is_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "KEEP_REJECTED", 500)
    chance, known, all_of_them, number = Random(seed), list[Rejected](), list[int](), 1
    for _ in range(400):
        count = chance.choice((1, 1, 1, 2, 30))
        if chance.random() < 0.7:
            reason = f"nobody is called {chance.randrange(1 + seed)}"
            note(known, Rejected("ann", number, count, reason, forbidden=False))
            all_of_them.extend(range(number, number + count))
            assert len(known) <= MAX_REASONS
            kept = numbers(known)
            assert kept == all_of_them[-len(kept) :], "and no other"
            assert {one for one in all_of_them if one >= number - 500} <= set(kept)
        number += count
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=list[Rejected])
    assert numbers(again) == numbers(known)


def test_a_client_that_is_rejected_all_the_time_makes_nobody_keep_much() -> None:
    """The reasons took 120 MiB of each connection."""
    mailbox = Mailbox()
    for number in range(1, 2 * KEEP_REJECTED, 2):  # What is between is accepted: nothing can be put together.
        mailbox.reject(Rejected("mallory", number, 1, f"nobody is called {number!r}" + 450 * "\N{SNOWMAN}", forbidden=False))
    assert len(msgspec.msgpack.encode(mailbox.rejected)) < 70_000
    assert mailbox.sent == 2 * KEEP_REJECTED - 1
    assert len(numbers(mailbox.rejected)) >= KEEP_REJECTED // 2
    first, *_, last = runs(mailbox.rejected)
    assert (first.reason, first.count) == (FORGOTTEN, 1)
    assert last.reason.startswith(f"nobody is called {mailbox.sent}"), "the last ones are told with their reasons"


def test_what_the_access_file_forbids_is_not_mixed_up_with_what_cannot_be() -> None:
    known: list[Rejected] = []
    note(known, Rejected("ann", 1, 1, "no", forbidden=True))
    note(known, Rejected("ann", 2, 1, "no", forbidden=False))
    note(known, Rejected("ann", 3, 2, "no", forbidden=False))
    assert known == [Rejected("ann", 1, 1, "no", forbidden=True), Rejected("ann", 2, 3, "no", forbidden=False)]
