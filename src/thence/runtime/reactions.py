"""What agents commit at their node: reactions, and letters that were set aside.

Rules:

* A reaction of an agent is one entry: what it consumed, what it is now and all that it sends. It follows together, or not at all.
* An agent whose own box is full may react: it is who makes room there. Others wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from thence.core.contract import Submit
from thence.errors import Busy
from thence.runtime.boxes import Bundle
from thence.runtime.ledger import Buried, Reacted
from thence.runtime.node import Node
from thence.runtime.office import Body

MAX_HELD_HARD: Final = 1_000_000
"""How many deliveries may wait because a box is full before agents have to wait too, even those who make room in it."""


def react(node: Node, reacted: Reacted, bodies: Sequence[Body]) -> None:
    """Commit a reaction with all that it sends. ``Busy`` means: later. Any other ``UsageError`` means: never."""
    node.ledger.check(reacted)
    for body in bodies:
        node.office.check(body)
    submits = [
        Submit(servers, node.office.write(body))
        for body in bodies
        if (servers := node.office.route(body) if isinstance(body, Bundle) else None) != ()
    ]
    full = node.full or (_no_room_for(reacted.agent, node) if submits else "")
    if full:
        raise Busy(f"{node.name!r} commits no reaction now: {full}")
    node.write_together(submits, reacted, lambda: node.reacted(reacted.agent, reacted.since, reacted.upto))
    node.ledger.reacted(reacted)


def revive(node: Node, number: int) -> None:
    """Send a letter that was set aside to its agent once more."""
    dead = node.ledger.dead_letter(number)
    full = node.full or _no_room_for("", node)
    if full:
        raise Busy(f"{node.name!r} takes nothing now: {full}")
    # It has a number of its sender no longer: that one was answered for long ago.
    bundle = msgspec.structs.replace(dead.bundle, first=1 - dead.bundle.count, to=(dead.agent,))
    node.write_together([Submit((node.name,), node.office.write(bundle))], Buried(number), None)
    node.ledger.buried(Buried(number))


def bury(node: Node, number: int) -> None:
    """Drop a letter that was set aside."""
    node.ledger.dead_letter(number)
    node.write_together([], Buried(number), None)
    node.ledger.buried(Buried(number))


def _no_room_for(agent: str, node: Node) -> str:
    """Say why nothing can be sent now, if so."""
    if node.office.full and not node.office.is_full(agent):
        return node.office.why_full
    if node.held >= MAX_HELD_HARD:
        return f"{node.held} deliveries wait for boxes that are full; MAX_HELD_HARD is {MAX_HELD_HARD}"
    return ""
