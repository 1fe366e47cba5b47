"""The inbox against a plain set of what is missing."""

import random

import pytest

from thence.trace.evidence.clocks import UNBOUNDED
from thence.trace.evidence.inbox import ProcessInbox

SENDERS = 3
SENT = 30


@pytest.mark.parametrize("seed", range(50))
def test_it_counts_what_is_missing(seed: int) -> None:
    chance = random.Random(seed)
    channel = {s: sorted(chance.sample(range(SENT), chance.randint(1, SENT))) for s in range(SENDERS - 1)}
    missing = {(sender, rank) for sender, ranks in channel.items() for rank in ranks}
    inbox = ProcessInbox(channel, SENDERS)
    for sender, rank in chance.sample(sorted(missing), len(missing)):
        inbox.deliver(sender, rank)
        missing.discard((sender, rank))
        for other in range(SENDERS):
            left = [r for s, r in missing if s == other]
            assert inbox.next_missing[other] == min(left, default=UNBOUNDED)
            for before in (0, rank, SENT // 2, SENT):
                assert inbox.count_missing(other, before) == sum(r < before for r in left)


def test_what_was_not_addressed_here_changes_nothing() -> None:
    inbox = ProcessInbox({0: [2, 5]}, 2)
    inbox.deliver(0, 3)
    inbox.deliver(0, 9)
    inbox.deliver(1, 0)
    assert inbox.next_missing.tolist() == [2, UNBOUNDED]
    assert inbox.count_missing(0, 6) == 2
