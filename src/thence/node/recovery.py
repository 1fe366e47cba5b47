"""What a node saves in a snapshot, and how it goes on from its store.

Rules:

* After a restart the member steps through its records again, and the other parts follow in the order of the log.
* Nothing waits for room meanwhile: what was taken before is taken again.
* A store that is new gets its topology and its id before any peer hears of it.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from thence.core.member.codec import FORMAT_VERSION
from thence.core.member.contract import Ready, Repeated, Restored
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.core.wire.records import Changed, Owed
from thence.errors import ThenceError
from thence.node.backlog import Backlog
from thence.node.directory.directory import Directory
from thence.node.directory.homes import Homes
from thence.node.driver.driver import Driver
from thence.node.history import TraceHistory
from thence.node.messages.acknowledgements import Acknowledgements
from thence.node.messages.dispatch import Dispatch
from thence.node.messages.intake import Intake
from thence.node.messages.removal import Removal
from thence.node.messages.returns import Returning
from thence.node.peers.epochs import PeerEpochs
from thence.node.reconfiguration import Reconfiguration
from thence.storage import journal
from thence.storage.agents import AgentLedger, DeadLettered, Reacted
from thence.storage.journal import (
    Acknowledged,
    EpochStored,
    FencedRecord,
    KeyDrawn,
    Met,
    Opened,
    Removed,
    Returned,
    Started,
    StatementKept,
    Written,
)
from thence.storage.mailbox import MailboxMet
from thence.storage.rejections import Rejected
from thence.trace.events import JOIN


class Parts(NamedTuple):
    """The parts of a node that a restart must find again."""

    driver: Driver
    directory: Directory
    homes: Homes
    ledger: AgentLedger
    epochs: PeerEpochs
    intake: Intake
    acknowledgements: Acknowledgements
    removal: Removal
    returning: Returning
    dispatch: Dispatch
    reconfiguration: Reconfiguration
    history: TraceHistory
    backlog: Backlog


def snapshot(parts: Parts) -> bytes:
    """Return everything at this moment."""
    spilled_frames = parts.backlog.snapshot_begun()
    saved = journal.Snapshot(
        FORMAT_VERSION,
        parts.driver.member.snapshot(),
        parts.directory.snapshot(),
        parts.dispatch.consumed,
        parts.history.events,
        parts.epochs.met,
        parts.acknowledgements.under_way,
        parts.ledger.snapshot(),
        write(parts.reconfiguration.topology),
        spilled_frames,
        parts.dispatch.handover.safety.snapshot(),
        parts.removal.under_way,
        parts.epochs.claims,
        parts.epochs.fenced,
        parts.returning.snapshot(),
        parts.epochs.statements.key,
        parts.epochs.statements.kept,
        parts.history.saved_arrivals(),
    )
    return journal.encode_snapshot(saved)


def recover(parts: Parts, given: Topology) -> None:
    """Go on from the store, with the addresses of the topology that was given."""
    name = parts.directory.server
    try:
        _bring_back(parts)
        parts.reconfiguration.choose(given)
        if name not in parts.epochs.met:
            parts.history.check_new()
    except ThenceError:
        parts.driver.store.close()
        raise
    now, store = parts.driver.clock.now(), parts.driver.store
    parts.driver.member.forwarder.forwarded = 0  # What was brought back happened long ago.
    if name in parts.epochs.met:
        parts.driver.write([Started(now, arrivals=True)])
        _started(parts, store.appended, now, arrivals=True)
        parts.epochs.statements.draw_key()  # For a store of a version without.
    else:
        parts.epochs.met[name] = os.urandom(8).hex()
        opened = Opened(write(parts.reconfiguration.topology), now, arrivals=True)
        parts.driver.write([opened, Met(name, parts.epochs.met[name])])
        _opened(parts, store.appended, now, arrivals=True)
        parts.epochs.statements.draw_key()
        store.commit()  # Before any peer hears of it: one that dies now must not come back as somebody else.


def _bring_back(parts: Parts) -> None:
    driver = parts.driver
    written, entries = driver.store.take_recovered()
    if written is None:
        driver.member.step(Restored(None, (), 0), driver.clock.now())
        parts.backlog.restore([], [])
    else:
        _restore(parts, journal.decode_snapshot(written))
    now = driver.clock.now()
    for entry in entries:
        for record in journal.decode_entry(entry):
            _again(parts, record, now)
    parts.intake.recovered()
    parts.history.release(driver.store.durable)
    driver.recovering = False
    parts.dispatch.recovered()


def _restore(parts: Parts, saved: journal.Snapshot) -> None:
    parts.directory.restore(saved.directory)
    parts.ledger.restore(saved.agents)
    parts.dispatch.handover.safety.restore(saved.safety)
    parts.returning.restore(saved.returning)
    parts.epochs.restore(saved.met, saved.claims, saved.fenced)
    parts.epochs.statements.restore(saved.key, saved.statements)
    parts.dispatch.consumed = saved.consumed
    parts.history.resume(saved.events, saved.arrived)
    restored = parts.driver.member.step(Restored(saved.member, (), saved.consumed), parts.driver.clock.now())
    parts.backlog.restore(parts.directory.mailboxes.spilled() + parts.returning.spilled(), saved.spilled_frames)
    _deliver(parts, restored)
    for client, upto in saved.acknowledging.items():
        parts.acknowledgements.durable(client, upto)
    parts.removal.restore(saved.removing)
    for agent, since, done in list(parts.ledger.done()):
        parts.acknowledgements.reacted(agent, since, done)


def _deliver(parts: Parts, ready: Ready) -> None:
    parts.dispatch.deliver(ready.deliver)
    parts.dispatch.safe(ready.safe)


def _again(parts: Parts, record: Written, now: int) -> None:
    """Let a record have its consequences once more."""
    if isinstance(record, Acknowledged):
        parts.acknowledgements.durable(record.client, record.upto)
    elif isinstance(record, Rejected | MailboxMet):
        parts.homes.again(record)
    elif isinstance(record, Reacted):
        parts.ledger.reacted(record)
        parts.acknowledgements.reacted(record.agent, record.since, record.upto)
    elif isinstance(record, Returned):
        parts.returning.again(record)
    elif isinstance(record, DeadLettered):
        parts.ledger.on_dead_lettered(record)
    elif isinstance(record, Removed):
        parts.removal.removed(record.client, record.since)
    elif isinstance(record, Met | EpochStored | FencedRecord):
        parts.epochs.again(record)
    elif isinstance(record, KeyDrawn | StatementKept):
        parts.epochs.statements.again(record)
    elif isinstance(record, Started):
        _started(parts, 0, record.at, arrivals=record.arrivals)
    elif isinstance(record, Opened):
        _opened(parts, 0, record.at or now, arrivals=record.arrivals)
    else:
        _repeat(parts, record, now)


def _repeat(parts: Parts, record: Any, now: int) -> None:
    at = parts.history.time_of(record) or now
    ready = parts.driver.member.step(Repeated(record), now)
    for envelope in ready.accepted:
        parts.intake.again(envelope)
    if isinstance(record, Changed | Owed):
        parts.reconfiguration.followed(0, at)
    parts.history.arrived([record], at)
    parts.history.record(0, ready.sent, ready.deliver, at)
    _deliver(parts, ready)
    parts.backlog.write_frames()


def _started(parts: Parts, sequence: int, at: int, *, arrivals: bool) -> None:
    """The server has started, now or at this point of what is brought back."""
    parts.history.begin(arrivals=arrivals)
    parts.homes.started()
    parts.epochs.started()
    parts.history.started(sequence, at)


def _opened(parts: Parts, sequence: int, at: int, *, arrivals: bool) -> None:
    """The server has begun, now or at this point of what is brought back."""
    parts.history.begin(arrivals=arrivals)
    if parts.reconfiguration.topology.version > 1:
        parts.history.note(sequence, JOIN, at)
