"""The queue between the member and the mailboxes: deliveries wait in it while a mailbox is full.

Rules:

* Deliveries go into mailboxes in their order. While a mailbox is full they wait here; when too many do, the member takes no more
  frames, and senders wait.
* Other servers are told at once of a mailbox that closes.
* While the store is being brought back nothing waits for room: a mailbox may have more in it than it should afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from thence.core.member.contract import Consumed, Delivery
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.hooks import NodeHooks
from thence.node.messages.closing_notices import ClosingNotices
from thence.node.messages.handover import Handover
from thence.node.messages.intake import Intake


class Dispatch:
    """Puts deliveries into mailboxes, as far as these take them."""

    def __init__(
        self,
        directory: Directory,
        driver: Driver,
        handover: Handover,
        intake: Intake,
        notices: ClosingNotices,
        hooks: NodeHooks,
    ) -> None:
        """``handover`` puts one delivery where it belongs; ``notices`` tell of closed mailboxes."""
        self.handover = handover
        self.notices = notices
        self.consumed = 0
        """The position of the last delivery that was handed over."""
        self.held_bytes = 0
        """How many bytes of deliveries wait because a mailbox is full."""
        self._directory = directory
        self._driver = driver
        self._intake = intake
        self._hooks = hooks
        self._held: deque[Delivery] = deque()
        self._dispatching = False
        """Whether deliveries are being put into mailboxes."""
        self._came_back_full = False
        """Whether a mailbox has been full since the store was brought back: it may have more in it than it should."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Put deliveries into mailboxes, as far as these take them; then tell whose they are."""
        held, directory, driver = self._held, self._directory, self._driver
        held.extend(deliveries)
        self.held_bytes += sum([delivery.frame.weight for delivery in deliveries])
        if self._dispatching:
            return  # Whoever was told has sent something that is for us too: it comes behind what is being handed over.
        self._dispatching = True
        hand = self.handover.hand
        try:
            while held and (not directory.mailboxes.full or driver.recovering):
                mailboxes: dict[str, None] = {}
                while held and (not directory.mailboxes.full or driver.recovering):
                    self.consumed = held[0].position
                    self.held_bytes -= held[0].frame.weight
                    hand(held.popleft(), mailboxes)
                if not driver.volatile:
                    driver.member.step(Consumed(self.consumed), driver.clock.now())
                if not driver.recovering:
                    self.notices.tell_closed()
                if mailboxes:
                    self._hooks.on_messages(mailboxes)
        finally:
            self._dispatching = False

    def safe(self, upto: int) -> None:
        """All deliveries up to this position are safe."""
        self._hooks.on_safe(self.handover.safety.safe(upto))

    @property
    def held(self) -> int:
        """How many deliveries wait because a mailbox is full."""
        return len(self._held)

    def holds_too_many(self) -> bool:
        """Return whether no more frames may be taken while a mailbox is full."""
        options = self._driver.member.options
        too_many = len(self._held) >= options.max_unconsumed or self.held_bytes >= options.max_unconsumed_bytes
        return self._came_back_full or too_many

    def go_on(self) -> None:
        """Go on with what waited for room in a mailbox."""
        self._came_back_full = False
        if not self._driver.recovering:
            self.deliver(())
            self._intake.tell_of_room()

    def look_for_room(self) -> None:
        """See whether closed mailboxes have room again, and tell others; to be called now and then."""
        mailboxes = self._directory.mailboxes
        if mailboxes.closed:
            was_full = mailboxes.full
            mailboxes.look_for_room()
            if was_full and not mailboxes.full:
                self.go_on()
        if mailboxes.refused:  # Others may have made room.
            mailboxes.refused.clear()
            self._intake.tell_of_room()
        if mailboxes.closed.changed:
            self.notices.tell()
            self._intake.tell_of_room()

    def recovered(self) -> None:
        """Everything is brought back: mailboxes that are full stop deliveries from here on."""
        self.handover.messages_delivered = 0  # What was brought back happened long ago.
        self._directory.mailboxes.look_for_room()
        self._came_back_full = bool(self._directory.mailboxes.full)
        self.notices.recovered()
