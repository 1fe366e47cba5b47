"""Scenarios: a run as text, with what is expected to happen written below each command.

    # A sends to C, then to B; B then sends to C.
    domain d fifo A B C
    ----
    d: fifo among A, B, C

    send A to C
    ----
    A sends A:1 to C
      on its way A -> C: A:1 FifoStamp(number=1)

A file is a list of blocks with an empty line between them: lines that begin with ``#``, one command, a line
``----``, and the output that is expected. ``thence scenario run`` compares, ``thence scenario rewrite`` writes what
really happens, to be read and committed by a person. The explorer prints what it finds in this form.

Commands:

    domain NAME ORDERING MEMBER MEMBER … [OPTION=VALUE …]    begin; a value is JSON, or text; several make a fabric
    link NAME DOMAIN DOMAIN RELAY=RELAY … [mode:…]           joins two domains; only_from:A,B lets only their messages cross
    replicas MEMBER MEMBER … [in DOMAIN]                     these stand for one relay, and send as members of DOMAIN
    send MEMBER to MEMBER … | send MEMBER to everyone        a member sends a message
    arrive FROM TO [N]                                       the first, or N-th, frame on its way arrives
    arrive everything                                        all frames arrive, oldest first, until nothing is on its way
    lose FROM TO [N]   |   repeat FROM TO [N]                a frame gets lost, or is on its way once more
    restart MEMBER                                           the member goes on from its snapshot
    suspect MEMBER OTHER   |   trust MEMBER OTHER            the member suspects another one, or no longer
    crash MEMBER                                             the member dies; what it sent before still arrives
    waits                                                    which message waits, for which one, from whom
    judge [PROPERTY …]                                       the judge's verdict on all that happened
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from thence.core.ordering import ordering_named
from thence.core.topology.domain import Domain
from thence.core.topology.link import MakeLinkEnd
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, ThenceError, UsageError
from thence.sim.search.explorer import Action, Case
from thence.sim.world import Happened, World
from thence.trace.events import Event
from thence.trace.judge import DEFAULT_REQUIRED, judge
from thence.trace.recorder import Recorder
from thence.words import counted

SEPARATOR = "----"


class Block(NamedTuple):
    """One command with its comment and the output that is expected."""

    line: int
    comment: tuple[str, ...]
    command: str
    expected: str


class Difference(NamedTuple):
    """A command whose output is not the expected one."""

    block: Block
    found: str


def parse(text: str, name: str = "scenario") -> list[Block]:
    """Split a scenario's text into its blocks."""
    blocks: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        comment = []
        while at < len(lines) and lines[at].startswith("#"):
            comment.append(lines[at])
            at += 1
        if at >= len(lines) or not lines[at].strip():
            blocks.append(Block(at, tuple(comment), "", ""))
            continue
        start = at
        if at + 1 >= len(lines) or lines[at + 1] != SEPARATOR:
            raise ConfigError(f"{name}:{at + 2}: expected {SEPARATOR!r} below the command {lines[at]!r}")
        at += 2
        expected = []
        while at < len(lines) and lines[at].strip():
            expected.append(lines[at])
            at += 1
        blocks.append(Block(start + 1, tuple(comment), lines[start].strip(), "\n".join(expected)))
    return blocks


def format_blocks(blocks: Iterable[Block]) -> str:
    """Return the text of a scenario file."""
    parts = []
    for block in blocks:
        lines = list(block.comment)
        if block.command:
            lines += [block.command, SEPARATOR]
            lines += block.expected.splitlines()
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def run_text(text: str, name: str = "scenario", *, link_ends: Iterable[MakeLinkEnd] = ()) -> tuple[list[Difference], str]:
    """Run a scenario, with ``link_ends`` as for ``Stage``; return what differs, and its text with what was really found."""
    stage = Stage(link_ends=link_ends)
    differences: list[Difference] = []
    rewritten: list[Block] = []
    for block in parse(text, name):
        if not block.command:
            rewritten.append(block)
            continue
        try:
            found = stage.do(block.command)
        except ThenceError as error:
            raise ConfigError(f"{name}:{block.line}: {block.command}: {error}") from error
        if found != block.expected:
            differences.append(Difference(block, found))
        rewritten.append(block._replace(expected=found))
    return differences, format_blocks(rewritten)


def run_file(path: Path, *, rewrite: bool = False, link_ends: Iterable[MakeLinkEnd] = ()) -> list[Difference]:
    """Run a scenario file; return what differs. With ``rewrite`` the file then says what was found."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    differences, rewritten = run_text(text, str(path), link_ends=link_ends)
    if rewrite and rewritten != text:
        path.write_text(rewritten, encoding="utf-8")
    return differences


def from_actions(case: Case, actions: Iterable[Action], comment: str) -> str:
    """Return the scenario of a run that the explorer found, with what happens in it."""
    topology = case.topology
    require = topology.guarantees if case.require is None else case.require
    commands = [*definition(topology), *map(str, actions), "waits"]
    commands.append(f"judge {' '.join(sorted(require | {'creation', 'duplication', 'completeness'}))}")
    stage = Stage(topology)
    blocks = [Block(0, (f"# {comment}",), commands[0], stage.do(commands[0]))]
    blocks += [Block(0, (), command, stage.do(command)) for command in commands[1:]]
    return format_blocks(blocks)


def definition(topology: Topology) -> list[str]:
    """Return the commands that define a fabric."""
    commands = []
    for domain in topology.domains.values():
        options = "".join(f" {key}={json.dumps(value, separators=(',', ':'))}" for key, value in domain.options.items())
        commands.append(f"domain {domain.name} {ordering_named(domain.ordering).traits.name} {' '.join(domain.members)}{options}")
    for link in topology.links.values():
        pairs = " ".join(f"{near}={far}" for near, far in link.relays)
        only = "" if link.only_from is None else f" only_from:{','.join(link.only_from)}"
        commands.append(f"link {link.name} {' '.join(link.between)} {pairs} mode:{link.mode_name}{only}")
    for group in topology.replicas:
        local = topology.local.get(group[0])
        commands += [f"replicas {' '.join(group)}" + (f" in {local}" if local is not None else "")]
    return commands


class Stage:
    """Where a scenario is played: a world, and the trace of what has happened in it."""

    def __init__(self, given: Topology | None = None, link_ends: Iterable[MakeLinkEnd] = ()) -> None:
        """``given`` stands in for the fabric that the scenario defines, for an ordering that is not in the registry.

        Links may also have ``link_ends``, by their names.
        """
        self._given = given
        self._modes: dict[str, Any] = {"causal": "causal", "fifo": "fifo", **{end.__name__: end for end in link_ends}}
        self._domains: list[Domain] = []
        self._links: list[Link] = []
        self._replicas: list[tuple[str, ...]] = []
        self._local: dict[str, str] = {}
        self._world: World | None = None
        self.events: list[Event] = []
        self._recorder: Recorder | None = None
        self.commands: dict[str, Callable[[list[str]], list[str]]] = {
            "domain": self._domain,
            "link": self._link,
            "replicas": self._replicate,
            "send": self._send,
            "arrive": self._arrive,
            "lose": self._lose,
            "repeat": self._repeat,
            "restart": self._restart,
            "suspect": lambda arguments: self._suspect(arguments, True),
            "trust": lambda arguments: self._suspect(arguments, False),
            "crash": self._crash,
            "waits": self._waits,
            "judge": self._judge,
        }

    def do(self, command: str) -> str:
        """Carry out one command and return what is to be seen."""
        word, *arguments = command.split()
        if word not in self.commands:
            raise ConfigError(f"there is no command {word!r} (there are: {', '.join(self.commands)})")
        return "\n".join(self.commands[word](arguments))

    @property
    def world(self) -> World:
        """The world as it is now; it begins when all domains and links are defined and something is done."""
        if self._world is None:
            if not self._domains:
                raise UsageError("a scenario begins with a domain")
            # A scenario may well show what breaks, so everything that can run is let through.
            topology = self._given or Topology(
                "scenario", self._domains, self._links, replicas=self._replicas, local=self._local, promise="nothing", force=True
            )
            self._world = World.of(topology)
            self._recorder = Recorder(self.events.append, topology.processes)
        return self._world

    def _domain(self, arguments: list[str]) -> list[str]:
        words = [word for word in arguments if "=" not in word]
        if len(words) < 3:
            raise UsageError("expected: domain NAME ORDERING MEMBER …")
        self._define()
        options = dict(_option(word) for word in arguments if "=" in word)
        name, ordering, *members = words
        self._domains.append(Domain(name, tuple(members), ordering, options))
        if not self._given:
            Topology.flat(self._domains[-1])
        return [f"{name}: {ordering} among {', '.join(members)}"]

    def _link(self, arguments: list[str]) -> list[str]:
        options = dict(word.split(":", 1) for word in arguments if ":" in word)
        pairs = [(near, far) for near, joined, far in (word.partition("=") for word in arguments) if joined]
        words = [word for word in arguments if "=" not in word and ":" not in word]
        if len(words) != 3 or not pairs or not set(options) <= {"mode", "only_from"}:
            raise UsageError("expected: link NAME DOMAIN DOMAIN RELAY=RELAY … [mode:… only_from:…]")
        self._define()
        name, one, other = words
        mode = options.get("mode", "causal")
        if mode not in self._modes and not self._given:
            raise UsageError(f"link {name}: there is no mode {mode!r} (there are: {', '.join(self._modes)})")
        only_from = tuple(options["only_from"].split(",")) if "only_from" in options else None
        self._links.append(Link(name, (one, other), tuple(pairs), self._modes.get(mode, "causal"), only_from))
        return [f"{name}: joins {one} and {other} by {', '.join(f'{near} and {far}' for near, far in pairs)}"]

    def _replicate(self, arguments: list[str]) -> list[str]:
        self._define()
        if "in" in arguments[1:-1]:
            *arguments, _, local = arguments
            self._local.update(dict.fromkeys(arguments, local))
        self._replicas.append(tuple(arguments))
        return [f"{', '.join(arguments)} stand for one relay"]

    def _define(self) -> None:
        if self._world is not None:
            raise UsageError("domains and links are defined before anything is done")

    def _send(self, arguments: list[str]) -> list[str]:
        if len(arguments) < 3 or arguments[1] != "to":
            raise UsageError("expected: send MEMBER to MEMBER … or: send MEMBER to everyone")
        sender, _, *to = arguments
        self._known(sender)
        self._world, happened = self.world.send(sender, None if to == ["everyone"] else tuple(to))
        return [f"{sender} sends {happened.submitted.id if happened.submitted else '?'} to {', '.join(to)}", *self._saw(happened)]

    def _arrive(self, arguments: list[str]) -> list[str]:
        if arguments == ["everything"]:
            seen = []
            while not self.world.quiet:
                oldest = min((flights[0].sent_at, pair) for pair, flights in self.world.flights.items() if flights)
                seen += self._arrive(list(oldest[1]))
            return seen or ["nothing is on its way"]
        source, target, place = self._place(arguments)
        flights = self.world.flights.get((source, target), ())
        label = _label(flights[place].frame) if place < len(flights) else ""
        self._world, happened = self.world.arrive(source, target, place)
        seen = [f"{target} gets {label} from {source}"]
        for wait in self.world.members[target].attachment.waiting():
            if wait.since == self.world.actions - 1:  # It waits since this very action; others may only have moved on.
                seen.append(f"  it waits for number {wait.missing.number} of {wait.missing.sender}")
                break
        return seen + self._saw(happened)

    def _lose(self, arguments: list[str]) -> list[str]:
        source, target, place = self._place(arguments)
        self._world = self.world.lose(source, target, place)
        return [f"a frame from {source} to {target} is lost"]

    def _repeat(self, arguments: list[str]) -> list[str]:
        source, target, place = self._place(arguments)
        self._world = self.world.repeat(source, target, place)
        return [f"a frame from {source} to {target} is on its way once more"]

    def _restart(self, arguments: list[str]) -> list[str]:
        if len(arguments) != 1:
            raise UsageError("expected: restart MEMBER")
        (name,) = arguments
        self._known(name)
        self._world = self.world.restart(name)
        return [f"{name} goes on from its snapshot"]

    def _suspect(self, arguments: list[str], suspected: bool) -> list[str]:
        if len(arguments) != 2:
            raise UsageError("expected: suspect MEMBER OTHER or: trust MEMBER OTHER")
        name, other = arguments
        self._known(name)
        self._world, happened = self.world.suspect(name, other, suspected)
        return [f"{name} {'suspects' if suspected else 'no longer suspects'} {other}", *self._saw(happened)]

    def _crash(self, arguments: list[str]) -> list[str]:
        if len(arguments) != 1:
            raise UsageError("expected: crash MEMBER")
        (name,) = arguments
        self._known(name)
        self._world = self.world.crash(name)
        if self._recorder is not None:
            self._recorder.note(name, "crash", self.world.actions)
        return [f"{name} dies"]

    def _waits(self, arguments: list[str]) -> list[str]:
        lines = [
            f"{name}: {wait.message or 'a marker'} from {wait.peer} waits for number {wait.missing.number} "
            f"of {wait.missing.sender}"
            for name, member in self.world.members.items()
            for wait in member.attachment.waiting()
        ]
        return lines or ["nothing waits"]

    def _judge(self, arguments: list[str]) -> list[str]:
        verdict = judge(self.events, arguments or DEFAULT_REQUIRED)
        counts = ", ".join(f"{name} {count}" for name, count in verdict.properties.items() if count)
        lines = [f"{verdict.verdict}{': ' if counts else ''}{counts}"]
        for row in verdict.violations:
            chain = f" ({' -> '.join(row.chain)})" if row.chain else ""
            lines.append(f"  {row.property}: {row.detail}{chain}")
        return lines

    def _saw(self, happened: Happened) -> list[str]:
        if self._recorder is None:
            raise UsageError("a scenario begins with a domain")
        lines = []
        time, topology = self.world.actions, self.world.topology
        if happened.submitted:
            self._recorder.send(happened.member, happened.submitted, time, topology.homes[happened.member][0])
        several = len(topology.domains) > 1
        for peer, place, frame in happened.flights:
            where = f" in {place}" if several else ""
            lines.append(f"  on its way {happened.member} -> {peer}{where}: {_label(frame)} {frame.stamp}")
        for delivery in happened.delivered:
            self._recorder.deliver(happened.member, delivery.envelope, time, delivery.domain, delivery.frame.stamp)
            lines.append(f"  {happened.member} delivers {_named(delivery.envelope)}")
        lines += [f"  {happened.member} refuses: {refusal}" for refusal in happened.refused]
        return lines

    def _place(self, arguments: list[str]) -> tuple[str, str, int]:
        if not 2 <= len(arguments) <= 3 or not (len(arguments) == 2 or arguments[2].isdecimal()):
            raise UsageError("expected: FROM TO [N]")
        self._known(arguments[0])
        self._known(arguments[1])
        place = int(arguments[2]) - 1 if len(arguments) == 3 else 0
        count = len(self.world.flights.get((arguments[0], arguments[1]), ()))
        if not 0 <= place < count:
            raise UsageError(
                f"{counted(count, 'frame', 'are')} on the way from {arguments[0]} to {arguments[1]}; "
                f"there is no number {place + 1}"
            )
        return arguments[0], arguments[1], place

    def _known(self, name: str) -> None:
        if name not in self.world.members:
            raise UsageError(f"there is no member {name!r} (there are: {', '.join(self.world.members)})")


def _label(frame: Frame[Any] | None) -> str:
    if frame is None:
        return "a report"
    return _named(frame.envelope) if frame.envelope else "a marker"


def _named(envelope: Envelope) -> str:
    """Return a message's name, with what its origin had seen where that travels with it."""
    return f"{envelope.id} seen={envelope.vector}" if envelope.vector else str(envelope.id)


def _option(word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
