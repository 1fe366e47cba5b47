"""One value that says everything about a simulated run. Same options, same trace, byte for byte.

The command that repeats a run is made from it (``replay``), so that a failing one can be handed to somebody else.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from typing import Any, Final, Literal, get_args

import msgspec

from thence.core.ordering import ordering_named
from thence.core.topology.domain import Domain
from thence.errors import ConfigError
from thence.sim.laws import parse_law

Pattern = Literal["broadcast", "unicast", "multicast", "mixed"]

MAX_PROCESSES = 10_000
MAX_MESSAGES = 100_000_000
MAX_BODY_BYTES = 1 << 24
MAX_BANDWIDTH_BYTES_PER_S = 10**12
MAX_PARTITIONS = 1_000
MAX_CRASHES = 10_000
MAX_COPIES = 100
MAX_LOSS = 0.9
"""Where more is lost, channels go on repeating for so long that a run hardly ends; where all is lost, it never does."""

LAWS: Final = ("gap", "delay", "link_delay", "reorder_delay", "sync")
"""The options that are laws."""


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to simulate. Delays and gaps are laws such as ``exponential:10ms``."""

    topology: str | None = None
    """The file of the fabric; None: one domain of ``processes`` with ``ordering``."""
    ordering: str = "vector"
    ordering_options: dict[str, Any] = {}
    processes: int = 5
    messages: int = 1_000
    """How many messages are sent in all."""
    pattern: Pattern = "broadcast"
    """Whom a message is for; ``mixed`` draws one of the other three for each message."""
    recipients: int = 3
    """To how many others a multicast goes."""
    body_bytes: int = 100
    gap: str = "exponential:5ms"
    """The time between two sends, anywhere in the domain."""
    replies: float = 0.25
    """How often a delivery makes its receiver send a message at once: what makes causal chains."""
    delay: str = "exponential:10ms"
    bandwidth_bytes_per_s: int | None = None
    link_delay: str | None = None
    """The delay of links between domains, if it is another one."""
    link_bandwidth_bytes_per_s: int | None = None
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    reorder_delay: str = "exponential:50ms"
    partitions: int = 0
    """How many times the processes are cut into two halves for a while."""
    crashes: int = 0
    """How many times some process loses its memory and comes back from its disk."""
    suspicions: int = 0
    """How many times a replica of a relay, or without them who acks to everybody, wrongly suspects another."""
    deaths: int = 0
    """How many processes at most die for good, of those who are not missed (``sim.faults.failures``); of each relay one stays."""
    rollbacks: int = 0
    """How many times some process comes back on an old copy of its disk (``sim.faults.copies``)."""
    clones: int = 0
    """How many times a copy of some process begins to run beside it, under the same name."""
    lost_disks: int = 0
    """How many times some process comes back with an empty disk."""
    snapshots: int = 0
    """How many times some process goes on from an old snapshot of its disk and its memory, without a start."""
    sync: str = "constant:100us"
    """How long the disk takes to make records durable."""
    durable: bool | None = None
    """Whether records go to disk at all; None: only where there are crashes."""
    reliable: bool | None = None
    """Whether frames are numbered, acknowledged and repeated; None: only where they may get lost."""
    seed: int = 0
    arrivals: bool = False
    """Whether the trace also says when each copy of a message came in."""

    @property
    def faulty(self) -> bool:
        """Whether frames may get lost, so that they must be numbered, acknowledged and repeated."""
        lossy = self.loss or self.duplication or self.reordering or self.partitions
        return bool(lossy or self.crashes or self.deaths or self.copied)

    @property
    def copied(self) -> bool:
        """Whether processes run on old copies of their disks, or beside each other: then they have connections, in epochs."""
        return bool(self.rollbacks or self.clones or self.lost_disks or self.snapshots)

    @property
    def acked(self) -> bool:
        """Whether frames are numbered, acknowledged and repeated."""
        return self.faulty if self.reliable is None else self.reliable

    @property
    def on_disk(self) -> bool:
        """Whether records go to disk."""
        return bool(self.crashes or self.deaths or self.copied) if self.durable is None else self.durable

    @property
    def span_ns(self) -> int:
        """About how long the traffic will take."""
        return max(1_000_000, int(parse_law(self.gap).mean_ns() * self.messages))

    def domain(self) -> Domain:
        """Return the domain: processes p1, p2, …"""
        return Domain("d", tuple(f"p{number}" for number in range(1, self.processes + 1)), self.ordering, self.ordering_options)

    def check(self) -> None:
        """Refuse what cannot be, by the name that the command line has for it."""
        ordering_named(self.ordering)
        _one_of("pattern", self.pattern, get_args(Pattern))
        _within("processes", self.processes, 2, MAX_PROCESSES)
        _within("messages", self.messages, 0, MAX_MESSAGES)
        _within("recipients", self.recipients, 1, MAX_PROCESSES)
        _within("body_bytes", self.body_bytes, 0, MAX_BODY_BYTES)
        _within("replies", self.replies, 0, 1)
        for name in ("bandwidth_bytes_per_s", "link_bandwidth_bytes_per_s"):
            if getattr(self, name) is not None:
                _within(name, getattr(self, name), 1, MAX_BANDWIDTH_BYTES_PER_S)
        _within("loss", self.loss, 0, MAX_LOSS)
        _within("duplication", self.duplication, 0, 1)
        _within("reordering", self.reordering, 0, 1)
        _within("partitions", self.partitions, 0, MAX_PARTITIONS)
        _within("crashes", self.crashes, 0, MAX_CRASHES)
        _within("suspicions", self.suspicions, 0, MAX_CRASHES)
        _within("deaths", self.deaths, 0, MAX_CRASHES)
        for name in ("rollbacks", "clones", "lost_disks", "snapshots"):
            _within(name, getattr(self, name), 0, MAX_COPIES)
        if self.copied and (self.duplication or self.reordering or self.durable is False):
            raise ConfigError(
                "--rollbacks, --clones, --lost-disks and --snapshots need disks and connections that repeat and reorder nothing, "
                "as those of servers: drop --duplication, --reordering and --no-durable"
            )
        if self.crashes and self.durable is False:
            raise ConfigError("--no-durable with --crashes: who comes back without memory is never understood again; drop one")
        if self.faulty and self.reliable is False:
            raise ConfigError("--no-reliable with faults: what is lost would stay lost, and others wait for it; drop one")
        for name in LAWS:
            if getattr(self, name) is not None:
                _check_law(name, getattr(self, name))

    def replay(self) -> str:
        """Return the command that repeats this run, as one would type it into a shell."""
        default = SimulationOptions()
        words = ["thence simulate"]
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value == getattr(default, name):
                continue
            if name == "ordering_options":
                words += [f"--option {shlex.quote(f'{key}={json.dumps(part)}')}" for key, part in sorted(value.items())]
            elif isinstance(value, bool):
                words.append(_flag(name) if value else f"--no-{name}")
            else:
                words.append(f"{_flag(name)} {shlex.quote(str(value))}")
        return " ".join(words)


def _flag(name: str) -> str:
    """Return what the command line calls this option."""
    return "--" + name.removesuffix("_bytes_per_s").removesuffix("_bytes").replace("_", "-")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{_flag(name)} {value}: must be from {low} to {high}")


def _one_of(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ConfigError(f"{_flag(name)} {value}: must be one of {', '.join(known)}")


def _check_law(name: str, text: str) -> None:
    try:
        parse_law(text)
    except ConfigError as error:
        raise ConfigError(f"{_flag(name)}: {error}") from None
