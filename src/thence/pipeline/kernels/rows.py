"""Findings as rows: the same rows, with the same words, that the judge gives, but for chains, which come later.

Each row of fifo and causal also says where its two messages were sent, so that the chain between them can be looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.pipeline.kernels.encoder import KINDS, Encoded
from thence.pipeline.kernels.inspection import AGAIN, BACKWARD, CAUSAL, FIFO, OUTSIDE, UNSENT, Findings, judge_story
from thence.pipeline.kernels.ledger import Lost, SliceEntry
from thence.pipeline.kernels.replay import RESEND, SEND, Ints, Story
from thence.pipeline.kernels.story import channels_of, delivered_before
from thence.trace import words
from thence.trace.verdict import Violation

REASONS = {UNSENT: words.UNSENT, OUTSIDE: words.OUTSIDE, BACKWARD: words.BACKWARD}
KIND_NAMES = {code: name for name, code in KINDS.items()}

Place = tuple[int, int]
"""Of a message: the slice that sent it, and its number there."""


class ViolationRow(NamedTuple):
    """A violation, and for those that have a chain the places of its ends."""

    violation: Violation
    earlier: Place | None = None
    later: Place | None = None
    slice: int | None = None
    """Where the offending event is."""


class Scene(NamedTuple):
    """A slice and everything needed to speak of it."""

    run: str | None
    number: int
    names: list[str]
    encoded: Encoded
    messages: pa.Array
    entry: SliceEntry
    story: Story
    resent: Mapping[tuple[int, int, str], tuple[str | None, int]]
    """Sends that another slice outdoes, by process, index and name: who sent the message in which event.

    Nobody, if the message has been given up as one that was never sent."""

    def message_name(self, message: int) -> str:
        named = len(self.messages)
        return str(self.messages[message].as_py() if message < named else self.entry.names[message - named])

    def place(self, message: int) -> Place:
        named = len(self.messages)
        if message < named:
            return self.number, message
        return int(self.entry.slices[message - named]), int(self.entry.locals[message - named])

    def process_of(self, event: int) -> str:
        return self.names[self.encoded.process_of(event)]


def judged(scene: Scene, backward: npt.NDArray[np.bool_], clocks: Ints, require: Collection[str]) -> Iterator[ViolationRow]:
    """Judge a slice whose messages have these clocks."""
    story, flights, named = scene.story, scene.entry.flights, len(scene.messages)
    channels = channels_of(story, scene.encoded, named, flights)
    return rows_of(scene, judge_story(story, backward, clocks, channels, delivered_before(story, named, flights)), require)


def rows_of(scene: Scene, findings: Findings, require: Collection[str]) -> Iterator[ViolationRow]:
    """All rows about events of a slice that are asked for."""
    if "well-formed" in require:
        yield from _misshapen(scene)
    for what, event, earlier, missing in zip(*(column.tolist() for column in findings), strict=True):
        if what in REASONS and "creation" in require:
            yield _row(scene, "creation", event, partial(words.created, reason=REASONS[what]))
        elif what == AGAIN and "duplication" in require:
            yield _row(scene, "duplication", event, words.again)
        elif what == FIFO and "fifo" in require:
            yield _late(scene, "fifo", event, earlier, missing)
        elif what == CAUSAL and "causal" in require:
            yield _late(scene, "causal", event, earlier, missing)


def _row(scene: Scene, name: str, event: int, tell: Callable[[str, str], str]) -> ViolationRow:
    process, message = scene.process_of(event), scene.message_name(int(scene.story.message[event]))
    index = scene.encoded.index_of(event)
    return ViolationRow(
        Violation(property=name, process=process, later=message, run=scene.run, index=index, detail=tell(process, message))
    )


def _late(scene: Scene, name: str, event: int, earlier: int, missing: int) -> ViolationRow:
    process, later = scene.process_of(event), int(scene.story.message[event])
    later_name, earlier_name = scene.message_name(later), scene.message_name(earlier)
    if name == "fifo":
        sender = scene.names[int(scene.story.sender[earlier])]
        detail = words.overtook_sender(process, later_name, earlier_name, missing, sender)
    else:
        detail = words.overtook_cause(process, later_name, earlier_name, missing)
    violation = Violation(
        property=name,
        process=process,
        later=later_name,
        earlier=earlier_name,
        missing=missing,
        run=scene.run,
        index=scene.encoded.index_of(event),
        detail=detail,
    )
    return ViolationRow(violation, scene.place(earlier), scene.place(later), scene.number)


def _misshapen(scene: Scene) -> Iterator[ViolationRow]:
    encoded, index_of = scene.encoded, scene.encoded.index
    complete_ones = np.ones(len(encoded.role), np.bool_)
    complete_ones[encoded.incomplete] = False
    lengths = np.diff(encoded.first)
    previous = np.repeat(scene.entry.previous, lengths)  # what comes below it comes too late, and is out of place
    goes_on = np.ones(len(previous), np.bool_)
    goes_on[encoded.first[:-1][lengths > 0]] = False
    after = np.flatnonzero(goes_on)
    previous[after] = np.maximum(previous[after], index_of[after - 1])
    speechless = (encoded.message < 0) & ((encoded.kind == KINDS["send"]) | (encoded.kind == KINDS["deliver"]))
    wrong = (index_of != previous + 1) | (index_of < 0) | speechless | ~complete_ones | (encoded.role == RESEND)
    for event in np.flatnonzero(wrong).tolist():
        process, index = scene.process_of(event), int(index_of[event])
        kind = KIND_NAMES.get(int(encoded.kind[event]), "")
        named, complete = bool(encoded.message[event] >= 0), bool(complete_ones[event])
        faults = words.misplaced(index, int(previous[event]), kind, message=named, to=complete)
        if encoded.role[event] == RESEND:
            faults.append(_resent(scene, event))
        message = scene.message_name(int(encoded.message[event])) if named else None
        detail = words.misshapen(process, index, faults)
        yield ViolationRow(
            Violation(property="well-formed", process=process, later=message, run=scene.run, index=index, detail=detail)
        )


def _resent(scene: Scene, event: int) -> str:
    encoded = scene.encoded
    process = encoded.process_of(event)
    message = int(encoded.message[event])
    name = scene.message_name(message)
    elsewhere = scene.resent.get((process, encoded.index_of(event), name))
    if elsewhere:
        return words.sent_before(name, *elsewhere)
    first = int(np.flatnonzero((encoded.message == message) & (encoded.role == SEND))[0])
    return words.sent_before(name, scene.process_of(first), encoded.index_of(first))


def lost_rows(
    run: str | None, names: list[str], lost: Collection[Lost], gone: set[str], require: Collection[str]
) -> Iterator[ViolationRow]:
    """Rows for what never reached a destination that was there to get it."""
    for message, sender, to, somebody in lost:
        if to in gone:
            continue
        for name, is_due, tell in (
            ("completeness", True, words.never_came),
            ("agreement", somebody, words.only_others_got),
        ):
            if name in require and is_due:
                detail = tell(to, message, names[sender])
                yield ViolationRow(Violation(property=name, process=to, later=message, missing=1, run=run, detail=detail))
