"""Writes down what happens, in a simulated run or at a server, as events of a trace.

An event is recorded when it is final: a send when the member has accepted it for good, a delivery when the
application has it. What a crash undoes was never recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from thence.core.wire.messages import Envelope, control_bytes
from thence.trace.events import ARRIVE, VIEW, Event

Sink = Callable[[Event], None]


class About(NamedTuple):
    """On whose behalf a server sends or delivers a message, and under which topic; None: neither of them."""

    client: str | None = None
    topic: str | None = None


NOBODYS: Final = About()


def nowhere(event: Event) -> None:
    """Drop an event: no trace was asked for."""


def kept(sink: Sink) -> tuple[list[Event], Sink]:
    """Return a list, and a sink that adds each event to it and passes the event on."""
    events: list[Event] = []

    def keep(event: Event) -> None:
        events.append(event)
        sink(event)

    return events, keep


def _name(envelope: Envelope) -> str:
    """Return ``str(envelope.id)``, in a third of the time: it is asked for with every event."""
    return f"{envelope.origin}:{envelope.number}"


class Recorder:
    """Numbers the events of each process and hands them to a sink."""

    def __init__(
        self,
        sink: Sink,
        members: Sequence[str],
        *,
        run: str | None = None,
        overhead: bool = True,
        arrivals: bool = False,
    ) -> None:
        """Record for ``members``; ``overhead`` also counts the control bytes of each delivery, which costs some time.

        ``arrivals`` asks whoever receives to call :meth:`arrive`, which makes the trace about twice as long.
        """
        self.arrivals = arrivals
        self._sink = sink
        self._members = tuple(members)
        self._run = run
        self._overhead = overhead
        self._next_index = dict.fromkeys(members, 0)

    def resume(self, process: str, index: int) -> None:
        """Go on with a process whose earlier events are written elsewhere."""
        self._next_index[process] = index

    def send(
        self,
        process: str,
        envelope: Envelope,
        time: int,
        domain: str,
        everyone: Sequence[str] | None = None,
        about: About = NOBODYS,
    ) -> None:
        """``process`` has sent a message; ``everyone`` says who that is, where a change of the fabric has made it others."""
        self._sink(
            Event(
                run=self._run,
                process=process,
                index=self._index(process),
                kind="send",
                message=_name(envelope),
                to=tuple(everyone or self._members) if envelope.to is None else envelope.to,
                time=time,
                domain=domain,
                bytes=len(envelope.body),
                client=about.client,
                topic=about.topic,
            )
        )

    def deliver(self, process: str, envelope: Envelope, time: int, domain: str, stamp: object, about: About = NOBODYS) -> None:
        """``process`` has delivered a message, which came with this stamp, to its application."""
        self._sink(
            Event(
                run=self._run,
                process=process,
                index=self._index(process),
                kind="deliver",
                message=_name(envelope),
                time=time,
                domain=domain,
                bytes=len(envelope.body),
                overhead=control_bytes(stamp, envelope) if self._overhead else None,
                client=about.client,
                topic=about.topic,
            )
        )

    def arrive(self, process: str, envelope: Envelope, time: int | None, domain: str) -> None:
        """A copy of a message for ``process`` has come in, nobody may know when; it may have to wait, and not be the first."""
        self._sink(
            Event(
                run=self._run,
                process=process,
                index=self._index(process),
                kind=ARRIVE,
                message=_name(envelope),
                time=time,
                domain=domain,
            )
        )

    def note(self, process: str, kind: str, time: int) -> None:
        """Something else happened to ``process``: crash, recover, …"""
        self._sink(Event(run=self._run, process=process, index=self._index(process), kind=kind, time=time))

    def view(self, process: str, lost: Sequence[str], time: int) -> None:
        """``process`` has told its application of a new view, without those who were lost."""
        to = tuple(lost) or None
        self._sink(Event(run=self._run, process=process, index=self._index(process), kind=VIEW, to=to, time=time))

    def _index(self, process: str) -> int:
        index = self._next_index.get(process, 0)
        self._next_index[process] = index + 1
        return index
