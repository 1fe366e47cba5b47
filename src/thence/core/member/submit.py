"""Submissions: what the application sends is checked, numbered and sent, or waits for a change of the topology.

Rule: whatever can be refused is refused before anything is sent. So a step either does all that was asked for, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Ready, Submit, SubmitAll
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.reconfig.protocol import View
from thence.core.reconfig.retention import Retention
from thence.core.stability.safe_turn import Deliverable
from thence.core.wire.messages import MAX_BODY_BYTES, MAX_DESTINATIONS, Envelope
from thence.core.wire.records import Record, Submitted
from thence.errors import Busy, UsageError


@dataclass(eq=False)
class Submitter:
    """Accepts messages of the application: ``_admission`` says for what there is room, and ``_view`` whether it has to wait."""

    _attachment: Attachment
    _log: DeliveryLog
    _admission: Admission
    _forwarder: Forwarder
    _view: View
    _retained: Retention | None

    def submit(self, step_input: Submit | SubmitAll, now: int) -> Ready:
        """Accept one message, or several that go together."""
        here = self._attachment
        submits: tuple[Submit, ...] = (step_input,) if isinstance(step_input, Submit) else step_input.submits
        together = isinstance(step_input, SubmitAll)
        if together:
            for name in {name for submit in submits for name in submit.to or () if name not in here.topology.homes}:
                raise UsageError(f"there is no process {name!r} in fabric {here.topology.name!r}")
        for submit in submits:
            self._check(submit)
        self._admission.check(submits, hard=together)
        envelopes: list[Envelope] = []
        sent: list[Envelope] = []
        deliver: Deliverable = []
        for submit in submits:
            depth = 0 if self._retained is None else self._retained.depth + 1
            envelope = Envelope(here.name, self._forwarder.number + 1, submit.to, submit.body, depth)
            going, delivered = self.send_or_wait(envelope)
            sent += going
            deliver += delivered
            envelopes.append(envelope)
        persist: list[Record] = [Submitted(envelope, now) for envelope in envelopes] if here.options.durable else []
        if here.takeover is not None:
            deliver += self._forwarder.share_news(now, persist)
        return self._log.ready(deliver, now, persist, envelopes, sent)

    def send_or_wait(self, envelope: Envelope) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Send a message of our own, or let it wait for the change that is going on; return what went out and what is for us."""
        if not self._view.state.paused:
            return (envelope,), self._forwarder.send(envelope)
        self._forwarder.number = envelope.number
        self._view.wait(envelope)
        return (), []

    def _check(self, submit: Submit) -> None:
        here = self._attachment
        if len(submit.body) > MAX_BODY_BYTES:
            raise UsageError(f"a body of {len(submit.body)} bytes; MAX_BODY_BYTES is {MAX_BODY_BYTES}")
        if here.topology.only_carries(here.name):
            raise UsageError(
                f"{here.name!r} is a replica of a relay: it carries messages of others and sends none itself; "
                "with local in its [[relays]] it sends in that domain"
            )
        if submit.to is not None and not 0 < len(submit.to) <= MAX_DESTINATIONS:
            raise UsageError(f"{len(submit.to)} destinations; there must be 1 to {MAX_DESTINATIONS} (MAX_DESTINATIONS)")
        if self._view.state.paused or self._view.state.phase == "left":
            self._check_held(submit)

    def _check_held(self, submit: Submit) -> None:
        """Refuse what could not be sent after the change that is going on, or for which there is no room until then."""
        here, view = self._attachment, self._view
        if view.state.phase == "left":
            raise UsageError(f"{here.name!r} has left the fabric {here.topology.name!r}")
        if submit.to is not None:
            here.routes.plan(here.name, here.name, submit.to, None)
        view.check_submission(here.name, submit.to)
        most_bytes = here.options.max_queued_bytes if here.accounts is None else MAX_BODY_BYTES  # See UNSTABLE_SLACK_BYTES.
        if len(view.state.waiting) >= here.options.max_queued or view.waiting_bytes >= most_bytes:
            raise Busy(
                f"{len(view.state.waiting)} messages wait for the fabric to change; max_queued or max_queued_bytes is reached"
            )
