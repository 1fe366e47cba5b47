"""What agents commit at their node: reactions, and messages that were set aside.

Rules:

* A reaction of an agent is one entry: what it consumed, what it is now and all that it sends. It follows together, or not at all.
* An agent whose own mailbox is full may react: it is who makes room there. Others wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from thence.core.member.contract import Submit
from thence.errors import Busy
from thence.node.node import Node
from thence.storage.agents import DeadLettered, Reacted
from thence.storage.bodies import Body
from thence.storage.mailbox import Batch

MAX_HELD_HARD: Final = 1_000_000
"""How many deliveries may wait because a mailbox is full before agents have to wait too, even those who make room in it."""

HELD_TIMES: Final = 2
"""By bytes: so many times what may wait before no more frames are taken (``max_unconsumed_bytes``), and one reaction more."""


def react(node: Node, reacted: Reacted, bodies: Sequence[Body]) -> None:
    """Commit a reaction with all that it sends. ``Busy`` means: later. Any other ``UsageError`` means: never."""
    node.ledger.check(reacted)
    for body in bodies:
        node.directory.check(body)
    submits = [
        Submit(servers, node.directory.write(body))
        for body in bodies
        if (servers := node.directory.route(body) if isinstance(body, Batch) else None) != ()
    ]
    full = node.intake.full or (_no_room_for(reacted.agent, node) if submits else "") or _closed_to(reacted.agent, node, bodies)
    if full:
        raise Busy(f"{node.name!r} commits no reaction now: {full}")
    node.intake.write_together(
        submits, reacted, lambda: node.acknowledgements.reacted(reacted.agent, reacted.since, reacted.upto)
    )
    node.ledger.reacted(reacted)


def revive(node: Node, number: int) -> None:
    """Send a message that was set aside to its agent once more."""
    dead = node.ledger.dead_letter(number)
    full = node.intake.full or _no_room_for("", node)
    if full:
        raise Busy(f"{node.name!r} takes nothing now: {full}")
    # It has a number of its sender no longer: that one was answered for long ago.
    batch = msgspec.structs.replace(dead.batch, first=1 - dead.batch.count, to=(dead.agent,))
    node.intake.write_together([Submit((node.name,), node.directory.write(batch))], DeadLettered(number), None)
    node.ledger.on_dead_lettered(DeadLettered(number))


def drop(node: Node, number: int) -> None:
    """Drop a message that was set aside."""
    node.ledger.dead_letter(number)
    node.intake.write_together([], DeadLettered(number), None)
    node.ledger.on_dead_lettered(DeadLettered(number))


def _closed_to(agent: str, node: Node, bodies: Sequence[Body]) -> str:
    """Say whose closed mailbox keeps an agent from sending, if one does."""
    if agent in node.directory.mailboxes.closed:
        return ""
    to, subscriptions = node.directory.closings.to, node.directory.subscriptions
    closed = next(filter(None, [to(body, subscriptions) for body in bodies if isinstance(body, Batch)]), "")
    return f"the mailbox of {closed!r} at {node.directory.home(closed)!r} is full" if closed else ""


def _no_room_for(agent: str, node: Node) -> str:
    """Say why nothing can be sent now, if so."""
    if node.directory.mailboxes.full and agent not in node.directory.mailboxes.closed:
        return node.directory.mailboxes.why_full
    if node.dispatch.held >= MAX_HELD_HARD:
        return f"{node.dispatch.held} deliveries wait for mailboxes that are full; MAX_HELD_HARD is {MAX_HELD_HARD}"
    if node.dispatch.held_bytes >= (most := HELD_TIMES * node.member.options.max_unconsumed_bytes):
        return f"{node.dispatch.held_bytes} bytes of deliveries wait for mailboxes that are full; the limit for agents is {most}"
    return ""
