"""How a node hands over what its member delivers: letters into boxes, or to the program itself; and notices to whom they concern.

Rules:

* Of each delivery is noted whose letters came with it, where it is told later that they are safe (``runtime.safety``).
* Letters for a server itself, in which no program runs, are left out, and the log says so: nobody would ever read them.
* Of the clients of a server that server alone tells: what another one says of who comes and goes there is left out.
* What cannot be read is left out: whoever wrote it must not be able to stop what comes behind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from thence.core.contract import Delivery
from thence.core.messages import Envelope
from thence.core.views import FABRIC
from thence.errors import MalformedFrame
from thence.runtime.boxes import Bundle
from thence.runtime.names import RETURNED
from thence.runtime.office import Body, Handed, Joined, Known, Left
from thence.runtime.protocol import Letter, count_letters, write_letters

if TYPE_CHECKING:
    from thence.runtime.node import Node

MAX_LOGGED_UNREAD: Final = 20
"""How often the log says that letters came for this server itself, in which no program runs; and that some cannot be read."""

log = logging.getLogger("thence.node")


class Handing:
    """See the module's text."""

    def __init__(self, node: Node) -> None:
        """Hand over what the member of ``node`` delivers."""
        self._node = node
        self._unread = 0
        self.unreadable = 0
        """How many deliveries were left out since nobody could read them."""

    def hand(self, delivery: Delivery, boxes: dict[str, None]) -> None:
        """Hand over one delivery; add to ``boxes`` who has new letters."""
        node, envelope = self._node, delivery.envelope
        if envelope.origin == FABRIC:
            self._hand_news(delivery.position, envelope, boxes)
            return
        body = self._read(envelope)
        if body is None:
            return
        if isinstance(body, Bundle):
            self._hand_letters(delivery.position, body, envelope, boxes)
        else:
            self._hand_notice(delivery.position, node.office.take(body, envelope), envelope.number)

    def _hand_letters(self, position: int, bundle: Bundle, envelope: Envelope, boxes: dict[str, None]) -> None:
        node, direct = self._node, self._is_for_program(bundle)
        if direct and self._hand_to_program(position, bundle):
            node.letters_delivered += bundle.count
            return
        if bundle.sender.startswith(RETURNED) and node.returning.is_for_agent(bundle):
            return
        handed = node.office.take(bundle, envelope)
        for name in handed.boxes:
            boxes[name] = None
        if not direct:
            self._note(position, bundle.count, handed.boxes)
        node.letters_delivered += bundle.count * len(handed.boxes)
        if node.spans is not None:
            node.spans.delivering(bundle, handed.boxes)
        if bundle.to is not None and len(handed.boxes) < len(bundle.to):
            node.returning.astray(position, bundle, envelope)
            if not handed.boxes and node.name in bundle.to:
                self._complain(bundle)

    def _hand_notice(self, position: int, handed: Handed, number: int) -> None:
        node = self._node
        if handed.left is not None:
            node.forget_client(handed.left)
            if handed.lost is not None:
                node.returning.lost(position, handed.left, handed.lost)
        if handed.joined is not None and handed.joined in node.office.state.boxes:
            node.returning.found(handed.joined)
        if handed.made is not None:
            node.ledger.made(handed.made, number)
        node.on_notice(handed)

    def _read(self, envelope: Envelope) -> Body | None:
        """Return what a message says; None: nobody can read it, and it is left out."""
        try:
            body = self._node.office.read(envelope)
            if isinstance(body, Bundle) and envelope.origin != self._node.name:  # Ours were checked when they came.
                _check_bundle(body, envelope.origin)
            elif isinstance(body, Joined | Left | Known):
                _check_notice(body, envelope.origin)
        except MalformedFrame as error:
            self.unreadable += 1
            if self.unreadable <= MAX_LOGGED_UNREAD:
                log.warning("a delivery that cannot be read is left out (%d so far): %s", self.unreadable, error)
            return None
        return body

    def _complain(self, bundle: Bundle) -> None:
        """Letters came for a program in this server. Whoever sent them could not know that there is none: the log says it."""
        self._unread += 1
        if self._unread <= MAX_LOGGED_UNREAD:
            log.warning(
                "%d letters of %s are left out: they are for %s, a server in which no program runs (%d times so far)",
                bundle.count,
                bundle.sender,
                self._node.name,
                self._unread,
            )

    def _hand_news(self, position: int, envelope: Envelope, boxes: dict[str, None]) -> None:
        """Tell our clients of a new view. All that they got before is of the old one, also what was handed over at its end."""
        node = self._node
        if not node.evolution.left:
            node.office.change(node.topology.processes)
        names = tuple(name for name in node.office.clients() if name not in node.ledger.agents)
        if not names:
            return
        letters = write_letters([Letter(envelope.body, coded=True)])
        bundle = Bundle(FABRIC, envelope.number, 1, names, None, letters)
        direct = self._is_for_program(bundle)
        if not direct or not self._hand_to_program(position, bundle):
            handed = node.office.take(bundle, envelope)
            if not direct:
                self._note(position, 1, handed.boxes)
            boxes.update(dict.fromkeys(handed.boxes))

    def _is_for_program(self, bundle: Bundle) -> bool:
        """Return whether letters are to be offered to the program in which we run: then nobody else gets them here."""
        node = self._node
        return node.on_bundle is not None and bundle.topic is None and (bundle.to is None or node.name in bundle.to)

    def _hand_to_program(self, position: int, bundle: Bundle) -> bool:
        """Offer letters to it, and say whether it has taken them. They are noted before it sees them."""
        node = self._node
        self._note(position, bundle.count, (node.name,))
        if node.on_bundle is None or not node.on_bundle(bundle):
            return False
        if position <= node.safety.upto:
            node.on_safe((node.name,))
        return True

    def _note(self, position: int, letters: int, names: tuple[str, ...]) -> None:
        if self._node.topology.notifying:
            self._node.safety.delivered(position, letters, names)


def _check_notice(notice: Joined | Left | Known, origin: str) -> None:
    """Refuse what a server says of who comes and goes at another one."""
    if notice.server != origin:
        raise MalformedFrame(f"a message of {origin!r} about clients of {notice.server!r}, which alone tells of them")


def _check_bundle(bundle: Bundle, origin: str) -> None:
    """Refuse a bundle of another server that claims other letters than it holds: boxes count what it claims."""
    if bundle.sender == FABRIC:
        raise MalformedFrame(f"a message of {origin!r} speaks for the fabric itself")
    held = count_letters(bundle.letters)
    if bundle.count < 1 or held != bundle.count:
        holds = "no list of letters" if held < 0 else f"{held}"
        raise MalformedFrame(f"a message of {origin!r} claims {bundle.count} letters of {bundle.sender!r}, and holds {holds}")
