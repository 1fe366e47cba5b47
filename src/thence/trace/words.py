"""Violations in words that a person understands."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def and_more(missing: int) -> str:
    """What to add after naming one of several missing messages."""
    return f" (and {missing - 1} more)" if missing > 1 else ""


def tell_chain(chain: Sequence[str], senders: Mapping[str, str]) -> str:
    """A chain as a story: who sent what after what. ``senders`` gives the sender of each message.

    >>> tell_chain(["m1", "m2", "m3"], {"m1": "A", "m2": "A", "m3": "B"})
    'A sent m1, then A sent m2, then B delivered m2 and sent m3'
    """
    steps = [f"{senders[chain[0]]} sent {chain[0]}"] if chain else []
    for earlier, later in itertools.pairwise(chain):
        if senders[earlier] == senders[later]:
            steps.append(f"{senders[later]} sent {later}")
        else:
            steps.append(f"{senders[later]} delivered {earlier} and sent {later}")
    return ", then ".join(steps)
