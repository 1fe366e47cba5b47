"""Traces for tests: written by hand as text, made at random, and spoiled on purpose.

The text has one event per line, in any order that reads well; each process counts its own indices::

    A send m1 -> B C        A sends m1 to B and C
    B deliver m1            B delivers it
    C crash                 any other kind
    A send m2               a send that names no destinations; ``A send m2 ->`` names none, which is not the same
    A deliver               a delivery that names no message
    A@7 send m3 -> B        index 7 instead of the next one; counting goes on from there
    [r2]                    what follows happened in run r2

``#`` begins a comment.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from thence.trace.events import Event


def parse(text: str) -> list[Event]:
    """The events that a text describes."""
    events: list[Event] = []
    run: str | None = None
    following: dict[tuple[str | None, str], int] = defaultdict(int)
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("["):
            run = line.strip("[]")
        elif line:
            event = _parse_line(line, run, following)
            following[run, event.process] = event.index + 1
            events.append(event)
    return events


def _parse_line(line: str, run: str | None, following: dict[tuple[str | None, str], int]) -> Event:
    left, arrow, right = line.partition("->")
    who, kind, *message = left.split()
    process, at, index = who.partition("@")
    return Event(
        run=run,
        process=process,
        index=int(index) if at else following[run, process],
        kind=kind,
        message=message[0] if message else None,
        to=tuple(right.split()) if arrow else None,
    )


def text_of(events: Sequence[Event]) -> str:
    """The text of events, with every index written out; for messages of failing tests."""
    lines = []
    for event in sorted(events, key=lambda e: (e.run or "", e.process, e.index, e.kind, e.message or "")):
        arrow = "" if event.to is None else f" -> {' '.join(event.to)}"
        lines.append(f"{event.process}@{event.index} {event.kind} {event.message or ''}{arrow}")
    return "\n".join(lines)


def reindexed(events: Sequence[Event]) -> list[Event]:
    """The same events, with each process's indices counted anew in the order given."""
    following: dict[tuple[str | None, str], int] = defaultdict(int)
    result = []
    for event in events:
        key = event.run, event.process
        result.append(msgspec.structs.replace(event, index=following[key]))
        following[key] += 1
    return result


@dataclass
class _Process:
    name: str
    inbox: list[str] = field(default_factory=list)
    had: set[str] = field(default_factory=set)
    past: frozenset[str] = frozenset()


def random_trace(
    chance: random.Random, processes: int, steps: int, *, ordered: bool, complete: bool = True, group: int | None = None
) -> list[Event]:
    """A run of processes that send to random groups and deliver what is on its way.

    With ``ordered`` causal order is kept, otherwise deliveries happen in any order. With ``complete`` everything is
    delivered in the end. ``group`` bounds the number of destinations.
    """
    fleet = [_Process(f"P{n}") for n in range(processes)]
    groups: dict[str, tuple[str, ...]] = {}
    pasts: dict[str, frozenset[str]] = {}
    events: list[Event] = []

    def may_deliver(process: _Process, message: str) -> bool:
        return not ordered or all(m in process.had for m in pasts[message] if process.name in groups[m])

    def send(process: _Process) -> None:
        message = f"m{len(groups)}"
        to = tuple(sorted(chance.sample([p.name for p in fleet], chance.randint(1, min(group or processes, processes)))))
        events.append(Event(process=process.name, index=0, kind="send", message=message, to=to))
        groups[message], pasts[message] = to, process.past
        process.past |= {message}
        for other in fleet:
            if other.name in to:
                other.inbox.append(message)

    def deliver(process: _Process) -> None:
        message = chance.choice([m for m in process.inbox if may_deliver(process, m)])
        process.inbox.remove(message)
        process.had.add(message)
        process.past |= pasts[message] | {message}
        events.append(Event(process=process.name, index=0, kind="deliver", message=message))

    for _ in range(steps):
        process = chance.choice(fleet)
        if chance.random() < 0.4 or not any(may_deliver(process, m) for m in process.inbox):
            send(process)
        else:
            deliver(process)
    while complete and (late := [p for p in fleet if p.inbox]):
        able = [p for p in late if any(may_deliver(p, m) for m in p.inbox)]
        deliver(chance.choice(able))
    return reindexed(events)


Mutation = Callable[[random.Random, list[Event]], list[Event]]


def _pick(chance: random.Random, events: list[Event], kind: str) -> int | None:
    places = [place for place, event in enumerate(events) if event.kind == kind]
    return chance.choice(places) if places else None


def swap_deliveries(chance: random.Random, events: list[Event]) -> list[Event]:
    """Two deliveries of one process change places."""
    one = _pick(chance, events, "deliver")
    if one is None:
        return events
    process = events[one].process
    others = [n for n, e in enumerate(events) if e.kind == "deliver" and e.process == process]
    two = chance.choice(others)
    result = list(events)
    result[one] = msgspec.structs.replace(events[one], message=events[two].message)
    result[two] = msgspec.structs.replace(events[two], message=events[one].message)
    return result


def drop_delivery(chance: random.Random, events: list[Event]) -> list[Event]:
    """A delivery never happened."""
    place = _pick(chance, events, "deliver")
    return events if place is None else reindexed(events[:place] + events[place + 1 :])


def drop_send(chance: random.Random, events: list[Event]) -> list[Event]:
    """A send was not recorded, and the process counted on without it."""
    place = _pick(chance, events, "send")
    return events if place is None else reindexed(events[:place] + events[place + 1 :])


def repeat_delivery(chance: random.Random, events: list[Event]) -> list[Event]:
    """A delivery happens once more, somewhere after the first."""
    place = _pick(chance, events, "deliver")
    if place is None:
        return events
    at = chance.randint(place + 1, len(events))
    return reindexed([*events[:at], events[place], *events[at:]])


def invent_delivery(chance: random.Random, events: list[Event]) -> list[Event]:
    """A delivery of a message that nobody sent."""
    if not events:
        return events
    invented = Event(process=chance.choice(events).process, index=0, kind="deliver", message="ghost")
    at = chance.randint(0, len(events))
    return reindexed([*events[:at], invented, *events[at:]])


def misdeliver(chance: random.Random, events: list[Event]) -> list[Event]:
    """A delivery at some process, of some message, anywhere: perhaps outside its destinations or before its send."""
    if not events:
        return events
    messages = [e.message for e in events if e.kind == "send"] or ["ghost"]
    extra = Event(process=chance.choice(events).process, index=0, kind="deliver", message=chance.choice(messages))
    at = chance.randint(0, len(events))
    return reindexed([*events[:at], extra, *events[at:]])


def narrow_group(chance: random.Random, events: list[Event]) -> list[Event]:
    """A send names one destination less, or a stranger more."""
    place = _pick(chance, events, "send")
    if place is None:
        return events
    to = list(events[place].to or ())
    to = [*to, "stranger"] if chance.random() < 0.5 or not to else chance.sample(to, len(to) - 1)
    return [*events[:place], msgspec.structs.replace(events[place], to=tuple(to)), *events[place + 1 :]]


def add_kind(chance: random.Random, events: list[Event]) -> list[Event]:
    """A process crashes, recovers, leaves, joins or does something of no interest."""
    if not events:
        return events
    kind = chance.choice(["crash", "recover", "leave", "join", "note"])
    extra = Event(process=chance.choice(events).process, index=0, kind=kind)
    at = chance.randint(0, len(events))
    return reindexed([*events[:at], extra, *events[at:]])


def tell_more(chance: random.Random, events: list[Event]) -> list[Event]:
    """Everything is told as a server tells it: messages arrive before they are delivered, and are of a client and a topic."""
    told = []
    for event in events:
        if event.kind == "deliver" and chance.random() < 0.8:
            told.append(Event(process=event.process, index=0, kind="arrive", message=event.message, time=chance.randint(0, 99)))
        told.append(msgspec.structs.replace(event, client="ann", topic=chance.choice([None, "room"])))
    return reindexed(told)


def shift_index(chance: random.Random, events: list[Event]) -> list[Event]:
    """One event's index is wrong: a hole, a repetition or out of place."""
    if not events:
        return events
    place = chance.randrange(len(events))
    index = events[place].index + chance.choice([-3, -1, 1, 2])
    return [*events[:place], msgspec.structs.replace(events[place], index=index), *events[place + 1 :]]


def blank_column(chance: random.Random, events: list[Event]) -> list[Event]:
    """A send or delivery loses its message or its destinations."""
    if not events:
        return events
    place = chance.randrange(len(events))
    blank = {"message": None} if chance.random() < 0.5 else {"to": None}
    return [*events[:place], msgspec.structs.replace(events[place], **blank), *events[place + 1 :]]


def resend(chance: random.Random, events: list[Event]) -> list[Event]:
    """A message is sent once more, by anybody."""
    place = _pick(chance, events, "send")
    if place is None:
        return events
    again = msgspec.structs.replace(events[place], process=chance.choice(events).process)
    at = chance.randint(0, len(events))
    return reindexed([*events[:at], again, *events[at:]])


MUTATIONS: tuple[Mutation, ...] = (
    swap_deliveries,
    drop_delivery,
    drop_send,
    repeat_delivery,
    invent_delivery,
    misdeliver,
    narrow_group,
    add_kind,
    tell_more,
    shift_index,
    blank_column,
    resend,
)


def random_case(seed: int) -> list[Event]:
    """A small random trace with up to four things wrong with it, the same for the same seed."""
    chance = random.Random(seed)
    events = random_trace(
        chance,
        chance.randint(1, 5),
        chance.randint(0, 22),
        ordered=chance.random() < 0.5,
        complete=chance.random() < 0.7,
        group=chance.choice([None, 1, 2]),
    )
    for _ in range(chance.choice([0, 1, 1, 2, 3, 4])):
        events = chance.choice(MUTATIONS)(chance, events)
    chance.shuffle(events)
    return events
