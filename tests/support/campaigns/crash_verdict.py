"""What came of a crash campaign: the histories of clients as a trace, and the judge over it and over the trace of the servers.

How a history becomes a trace:

* A message was sent if its client was told so, or if anybody got it. What a client tried right before it was killed may have been
  sent or not; but if a later one was, it was too.
* Messages are handed over in the order of their positions, without a hole but for news of views. A program that was killed may
  get again what it had not finished: at the same position the same message. That counts once. Within the life of a program it may
  not happen, and once the next life has begun behind a message, no later one gets it. What a program died with before it could
  acknowledge it comes again.
* Of two programs with the same client the one that started later comes later, whatever the older one did meanwhile. When that one
  is told that so many of its messages were not accepted, exactly those never come anywhere, and the others count as accepted.
* A reply is written down before other messages that came in the same batch, which is not how they are ordered. So deliveries with
  nothing sent between them are put in the order of their positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.support.campaigns.crash_clients import Line
from thence.trace.events import DELIVER, SEND, Event
from thence.trace.files import read_trace
from thence.trace.judge import judge

CLONE: Final = "clone"
"""What the names of clients end with whose server is a copy that runs beside the original."""

_decoder = msgspec.json.Decoder(Line)


class Told(NamedTuple):
    """What the history of one client says."""

    events: list[Event]
    counts: Counter[str]
    wrong: list[str]


def histories(folder: Path) -> dict[str, list[Line]]:
    """Read what all clients wrote, by their names. What those of a clone got is nobody's: there are two of their server."""
    paths = sorted((folder / "clients").glob("*.jsonl"))
    found = {path.stem: _by_life(path.read_bytes()) for path in paths}
    return {name: [line for line in lines if line.kind != "got" or not name.endswith(CLONE)] for name, lines in found.items()}


def _by_life(data: bytes) -> list[Line]:
    """Read one history: life after life, in the order in which they started; two programs may have written at the same time."""
    lives: dict[str, list[Line]] = {}
    for line in data.split(b"\n")[:-1]:  # One may be half written at this moment, while the clients still run.
        read = _decoder.decode(line)
        lives.setdefault(read.life, []).append(read)
    return [line for lines in lives.values() for line in lines]


def accepted_by(lines: list[Line]) -> set[str]:
    """Return the messages of which a client was told that they are accepted."""
    accepted: set[str] = set()
    tried: list[str] = []
    for line in lines:
        if line.kind == "start":
            tried = []
        elif line.kind == "try":
            tried.append(line.message)
        elif line.kind == "sent":
            accepted.add(line.message)
        elif line.kind == "flushed":
            accepted.update(tried[: int(line.message)])
        elif line.kind == "fenced" and line.position >= 0:
            accepted.update(tried[: len(tried) - line.position])
    return accepted


def never_accepted(lines: list[Line]) -> set[str]:
    """Return the messages of which a client was told that they never will be accepted, or that it tried after that."""
    never: set[str] = set()
    tried: list[str] = []
    fenced = False
    for line in lines:
        if line.kind == "start":
            tried, fenced = [], False
        elif line.kind == "try":
            tried.append(line.message)
            never.update([line.message] if fenced else [])
        elif line.kind == "fenced":
            fenced = True
            never.update(tried[len(tried) - line.position :] if line.position > 0 else [])
    return never


def accepted_before(lines: list[Line], sent: set[str]) -> set[str]:
    """Return what must have been accepted, since something was that the same life tried later: servers accept in order."""
    found: set[str] = set()
    tried: list[str] = []
    for line in lines:
        if line.kind == "start":
            tried = []
        elif line.kind == "try":
            tried.append(line.message)
            if line.message in sent:
                found.update(tried)
                tried = []
    return found


class Missing(NamedTuple):
    """A message that was accepted, and has not come to somebody."""

    message: str
    sender: str
    to: str


def missing(told: dict[str, list[Line]]) -> list[Missing]:
    """Return what was accepted, or came to anybody, and has not come to everybody."""
    got = {name: {line.message for line in lines if line.kind == "got"} for name, lines in told.items()}
    arrived = set[str]().union(*got.values())
    found = []
    for name, lines in told.items():
        sent = accepted_before(lines, accepted_by(lines) | arrived)
        tried = [line for line in lines if line.kind == "try" and line.message in sent]
        found += [Missing(line.message, name, to) for line in tried for to in line.to if line.message not in got[to]]
    return found


def unfinished(folder: Path) -> str:
    """Say what clients still wait for, if they do."""
    told = histories(folder)
    got = {name: {line.message for line in lines if line.kind == "got"} for name, lines in told.items()}
    arrived = set[str]().union(*got.values())
    missing: Counter[str] = Counter()
    for name, lines in told.items():
        accepted = accepted_by(lines)
        started = max((at for at, line in enumerate(lines) if line.kind == "start"), default=0)
        for at, line in enumerate(lines):
            if line.kind == "try" and (line.message in accepted or line.message in arrived):
                missing.update(f"for {to}" for to in line.to if line.message not in got[to])
            elif line.kind == "try" and at > started:
                missing[f"not accepted from {name}"] += 1
    return ", ".join(f"{count} {what}" for what, count in missing.most_common(8))


def told(folder: Path) -> dict[str, str]:
    """Return what clients were told with which a server did not go on."""
    return {name: line.message for name, lines in histories(folder).items() for line in lines if line.kind == "told"}


def judge_clients(folder: Path, excused: Collection[Missing] = ()) -> tuple[Counter[str], list[str]]:
    """Judge what clients did; return how much there was, and what is wrong.

    ``excused`` is what need not come, since somebody was told that it may not.
    """
    lives = histories(folder)
    arrived = {line.message for lines in lives.values() for line in lines if line.kind == "got"}
    gone = {(one.message, one.to) for one in excused}
    told = [_told(name, lines, accepted_by(lines) | arrived | {one.message for one in excused}) for name, lines in lives.items()]
    counts = sum((one.counts for one in told), Counter[str]())
    wrong = [what for one in told for what in one.wrong]
    for name, lines in lives.items():
        wrong += [f"{name}: {message} was never to be accepted, and came" for message in sorted(never_accepted(lines) & arrived)]
    events = [
        msgspec.structs.replace(event, to=tuple(to for to in event.to if (event.message, to) not in gone)) if event.to else event
        for one in told
        for event in one.events
    ]
    verdict = judge(events)
    return counts, [*wrong, *(f"clients: {violation}" for violation in verdict.violations)]


def judge_servers(folder: Path) -> tuple[Counter[str], list[str]]:
    """Judge what servers wrote."""
    if not any((folder / "trace").iterdir()):
        return Counter(), ["the servers wrote no trace"]
    events = read_trace(folder / "trace")
    counts = Counter(f"server {event.kind}" for event in events)
    return counts, [f"servers: {violation}" for violation in judge(events).violations]


def _told(name: str, lines: list[Line], sent: set[str]) -> Told:
    counts: Counter[str] = Counter()
    wrong = [f"{name}: {line.message}" for line in lines if line.kind == "failed"]
    happened: list[Line] = []
    seen: dict[int, tuple[str, int]] = {}
    firsts: dict[int, int] = {}
    """Where each life that got anything began."""
    life, in_vain = 0, False
    for line in lines:
        if line.kind == "start":
            life, in_vain = life + 1, False
        elif line.kind == "try" and line.message not in sent:
            in_vain = in_vain or bool(line.to)  # A topic that nobody follows is for nobody.
            counts["tried only"] += 1
        elif line.kind == "try":
            counts["accepted"] += 1
            happened.append(line)
            if in_vain:
                wrong.append(f"{name}: {line.message} was sent, and one that was tried before it was not")
        elif line.kind == "got":
            firsts[life] = min(line.position, firsts.get(life, line.position))
            message, when = seen.setdefault(line.position, (line.message, life))
            if message != line.message:
                wrong.append(f"{name}: position {line.position} had {message}, and then {line.message}")
            elif when < life:
                counts["handed over again"] += 1
                continue
            happened.append(line)
    wrong += _ends(name, lines, counts)
    counts["deliveries"] = len(seen)
    counts["lives"] = life
    wrong += [
        f"{name}: life {later} began again at position {firsts[later]}, which life {life} before it had done with"
        for life, later in pairwise(firsts)
        if firsts[later] < firsts[life]
    ]
    happened = _in_order(happened)
    positions = [line.position for line in happened if line.kind == "got"]
    views = {line.position for line in lines if line.kind == "view"}
    if sorted(views | set(positions)) != list(range(1, len(positions) + len(views) + 1)) or positions != sorted(positions):
        wrong.append(f"{name}: positions have holes, repeat or go back: {_astray(positions)}")
    return Told([_event(name, at, line) for at, line in enumerate(happened)], counts, wrong)


def _ends(name: str, lines: list[Line], counts: Counter[str]) -> list[str]:
    """Look at how lives ended; return what is wrong."""
    wrong = []
    for at, line in enumerate(lines):
        if line.kind == "fenced":
            counts["fenced"] += 1
            counts["reported as not accepted"] += max(0, line.position)
        elif line.kind == "told":
            counts["told that the server does not go on"] += 1
        elif line.kind == "died":
            counts["deaths before an acknowledgement"] += 1
            if line.position not in {later.position for later in lines[at + 1 :] if later.kind == "got"}:
                wrong.append(f"{name}: died with {line.message} in its hands, which never came again")
    return wrong


def _in_order(happened: list[Line]) -> list[Line]:
    ordered: list[Line] = []
    burst: list[Line] = []
    for line in happened:
        if line.kind == "got":
            burst.append(line)
        else:
            ordered += [*sorted(burst, key=lambda got: got.position), line]
            burst = []
    return ordered + sorted(burst, key=lambda got: got.position)


def _astray(positions: list[int]) -> str:
    at = next((at for at, position in enumerate(positions) if position != at + 1), len(positions))
    return f"{positions[max(0, at - 2) : at + 3]} at {at}"


def _event(name: str, index: int, line: Line) -> Event:
    if line.kind == "got":
        return Event(process=name, index=index, kind=DELIVER, message=line.message)
    return Event(process=name, index=index, kind=SEND, message=line.message, to=tuple(line.to))
