"""One process of a fabric: ``step(input, now) -> Ready``.

Whoever runs a member does what a ``Ready`` says in this order: 1. make ``persist`` durable; 2. ``send`` the packets, and tell the
application that what it submitted is ``accepted``; 3. ``deliver``, in order. A server's driver and the simulator do so; the
explorer, studies and tests step members by themselves.

Rules:

* Same inputs, same outputs. Nothing in here looks at a clock or draws a number.
* Nothing is acknowledged, to a peer or to the application, before it is on disk: acknowledgements are in ``send``
  and ``accepted``, and these come after ``persist``.
* ``step`` either does all that an input asks for or raises and has changed nothing. A packet holds several frames;
  those that are refused are listed in ``refused``, each by name, and the others are taken.
* After a crash, a new member gets ``Restored`` as its first input, steps through the records again and goes on.
  What the application had not consumed is delivered again; what it had is not.
"""

from __future__ import annotations

import msgspec

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import (
    Arrived,
    Connected,
    Consumed,
    Fetched,
    Input,
    Ready,
    Repeated,
    Restored,
    Spilled,
    Submit,
    SubmitAll,
    Suspicion,
    Timer,
)
from thence.core.member.deliver import DeliveryLog
from thence.core.member.fast_path import FastPath
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.member.receive import Receiver
from thence.core.member.reconfigure import Reconfigurer, Survivor
from thence.core.member.recover import Recovery
from thence.core.member.spill import SpillWays
from thence.core.member.submit import Submitter
from thence.core.ordering import Wait, unsecured_in
from thence.core.reconfig.protocol import View, ViewInput
from thence.core.reconfig.retention import Retention
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Record, Suspecting
from thence.errors import UsageError


class Member:
    """One process of a fabric, made of parts. A part is there to be asked; only ``step`` changes anything."""

    def __init__(self, name: str, where: Domain | Topology | Routes, options: MemberOptions | None = None) -> None:
        """Make the member called ``name`` of a domain or a fabric; nothing has happened yet."""
        self.name = name
        self.options = options or MemberOptions()
        topology = Topology.flat(where) if isinstance(where, Domain) else where
        routes = topology if isinstance(topology, Routes) else Routes(topology)
        self.attachment = Attachment(name, routes, self.options)
        self.view = View(since=routes.topology.version if routes.topology.version > 1 else 0)
        self._retained = Retention(name, self.options.retain_bytes) if self.options.retain_bytes else None
        self.log = DeliveryLog(self.attachment, self._retained)
        self.admission = Admission(self.attachment, self.log)
        self.forwarder = Forwarder(self.attachment, self.admission, self._retained)
        self.forwarder.since = self.view.state.since
        self._suspicions: dict[str, bool] = {}
        """What we were told while nothing was to change (``ViewState.comparing``)."""
        self._started = False
        self._restoring = False
        self._join_parts()

    def _join_parts(self) -> None:
        """Make the parts that have no state of their own."""
        here, log, forwarder, view, retained = self.attachment, self.log, self.forwarder, self.view, self._retained
        self.spill = SpillWays(here)
        self.survivor = Survivor(here, view, retained)
        self.reconfigurer = Reconfigurer(here, log, forwarder, self.survivor, view, retained)
        self.submitter = Submitter(here, log, self.admission, forwarder, view, retained)
        self.receiver = Receiver(here, log, self.admission, forwarder, view, retained)
        self._recovery = Recovery(here, log, forwarder, self.receiver, self.submitter, self.reconfigurer, view, retained)
        self._fast_path = FastPath(here, log, forwarder, view)

    @property
    def topology(self) -> Topology:
        """The topology that we take part in."""
        return self.attachment.topology

    def step(self, step_input: Input, now: int) -> Ready:
        """Do what the input asks for; return what must be done outside."""
        self.forwarder.now = now
        if isinstance(step_input, Arrived):  # First what comes most often.
            self._started, self._restoring = True, False
            fast = self._fast_path.arrived(step_input, now) if self.attachment.simple else None
            return fast or self.receiver.arrived(step_input, now)
        if isinstance(step_input, Submit):
            self._started, self._restoring = True, False
            fast = self._fast_path.submit(step_input, now) if self.attachment.simple else None
            return fast or self.submitter.submit(step_input, now)
        if isinstance(step_input, Restored | Repeated):
            return self._recover(step_input, now)
        self._started = True
        if isinstance(step_input, Consumed):
            self.log.consumed(
                step_input.position
            )  # Also between records that are repeated: what they deliver is consumed at once.
            return Ready(wake=self.attachment.wake())
        if isinstance(step_input, Spilled | Fetched):
            return self.spill.moved(step_input, now)  # So are these, if records make more frames than memory should hold.
        self._restoring = False
        return self._seldom(step_input, now)

    def _seldom(self, step_input: SubmitAll | Connected | Suspicion | Timer | ViewInput, now: int) -> Ready:
        if isinstance(step_input, SubmitAll):
            return self.submitter.submit(step_input, now)
        if isinstance(step_input, Connected):
            self.attachment.connected(step_input.peer)
        elif isinstance(step_input, Suspicion):
            return self._suspect(step_input, now)
        elif isinstance(step_input, Timer):
            self.attachment.visit_all()
            if self._suspicions and not self.view.state.comparing:
                return self._suspect_late(now)
        else:
            ready = self.reconfigurer.change(step_input, now)
            return msgspec.structs.replace(ready, wake=now) if self._suspicions and not self.view.state.comparing else ready
        return self.attachment.ready(now)

    def _recover(self, step_input: Restored | Repeated, now: int) -> Ready:
        if isinstance(step_input, Repeated):
            if not self._restoring:
                raise UsageError(f"{self.name!r} is not being restored; records are repeated right behind Restored")
            return self._recovery.repeat(step_input)
        if self._started:
            raise UsageError(f"{self.name!r} has started already; Restored must be its first input")
        self._started = self._restoring = True
        return self._recovery.restore(step_input, now)

    def _suspect(self, suspicion: Suspicion, now: int) -> Ready:
        peer, suspected = suspicion
        here = self.attachment
        if self.view.state.comparing:  # What we have must stay as we told others.
            self._suspicions[peer] = suspected
            return here.ready(now)
        here.shared_with(peer)
        here.suspect(peer, suspected)
        deliver: Deliverable = []
        records: list[Record] = []
        if self.forwarder.heeds(peer, suspected):
            carried = None if here.notices is None else here.notices.carried
            safe = () if carried is None else tuple(carried.safe_of.items())
            deliver += self.forwarder.suspect(peer, suspected, safe)
            records += [Suspecting(peer, suspected, now, safe)] if self.options.durable else []
        deliver += self.forwarder.share_news(now, records)
        more = deliver or records or here.notices is not None
        return self.log.ready(deliver, now, records) if more else here.ready(now)

    def _suspect_late(self, now: int) -> Ready:
        """Take the next suspicion that came while nothing was to change; ask for a timer if there are more."""
        peer, suspected = self._suspicions.popitem()
        known = any(peer in place.peers for place in self.attachment.places.values())
        ready = self._suspect(Suspicion(peer, suspected), now) if known else self.attachment.ready(now)
        return msgspec.structs.replace(ready, wake=now) if self._suspicions else ready

    def unsecured(self) -> list[Envelope]:
        """Return our messages that do not outlive us yet, where domains see to that, oldest first."""
        places = self.attachment.domains.values()
        found = {one.number: one for one in unsecured_in(place.ordering for place in places) if one.origin == self.name}
        return [found[number] for number in sorted(found)]

    def snapshot(self) -> bytes:
        """Return the whole state. Records from before it are not needed any more."""
        return self._recovery.snapshot()

    def fork(self) -> Member:
        """Return a member that goes on from here on its own, for a search that tries several futures."""
        twin = object.__new__(type(self))
        twin.name, twin.options, twin._started, twin._restoring = self.name, self.options, self._started, self._restoring
        twin.attachment, twin.view = self.attachment.fork(), self.view.fork()
        twin._suspicions = dict(self._suspicions)
        twin._retained = None if self._retained is None else self._retained.fork()
        twin.log = self.log.fork(twin.attachment, twin._retained)
        twin.admission = Admission(twin.attachment, twin.log)
        twin.forwarder = self.forwarder.fork(twin.attachment, twin.admission, twin._retained)
        twin._join_parts()
        return twin


def describe_wait(wait: Wait, now: int) -> str:
    """Say in words which message waits, for which one, from whom, and for how long."""
    what = str(wait.message) if wait.message else "a marker"
    since = f", since {(now - wait.since) / 1e9:.3f} s" if wait.since else ""  # It is not known of all: see ``Wait``.
    return f"{what} from {wait.peer} waits for number {wait.missing.number} of {wait.missing.sender}{since}"
