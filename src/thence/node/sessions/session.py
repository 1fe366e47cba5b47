"""One client at its server: what it sends goes to the node, what waits in its mailbox goes to it.

The client may be at the other end of a connection (``server.server``) or in the same program (``client.embedded``).

Rules:

* Batches come in with numbers. One that was submitted before is not submitted again, whatever was lost in between.
* What the node cannot take now waits here, in order; the client's own limit on unaccepted messages bounds it. So does what is
  beyond the client's part of what may be on its way to the disk (``node.sessions.in_flight``). What waits is served in turn with
  that of others (``node.sessions.fair_turns``), and large batches have a part of the time (``node.sessions.large_turns``).
* A client is told of acceptance in order: never of a message before all earlier ones.
* What cannot be is refused before anything is done: numbers that no client reaches, recipients twice, a topic beside recipients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from thence.errors import Busy, MalformedFrame, UsageError
from thence.net.names import MAX_TOPIC_CHARACTERS
from thence.net.protocol import (
    MAX_NUMBER,
    MAX_RECIPIENTS_BYTES,
    MAX_UNACCEPTED,
    MAX_UNACCEPTED_BYTES,
    Publish,
    count_messages,
    read_messages,
    write_messages,
)
from thence.node.node import Node
from thence.node.sessions.fair_turns import MESSAGE_BYTES
from thence.node.sessions.feed import FeedOutlet, MailboxFeed, Withhold
from thence.node.sessions.in_flight import InFlight
from thence.node.sessions.large_turns import LARGE_BYTES, LargeTurns
from thence.storage.bodies import Follows
from thence.storage.mailbox import Batch
from thence.storage.rejections import Rejected


class Outlet(FeedOutlet, Protocol):
    """The way to a client."""

    def accepted(self, upto: int) -> None:
        """Say that its messages up to this number are accepted."""

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Say that these of its messages never will be; ``forbidden``: since it may not write them."""

    def subscribed(self, topic: str, wanted: bool) -> None:
        """Say that it follows a topic, or no longer."""

    def not_subscribed(self, topic: str, reason: str) -> None:
        """Say why that cannot be done here any more."""


CROWD: Final = 4_096
"""How many things of one client may wait for its part of what is in flight before it is read more slowly."""

MAX_REASON_CHARACTERS: Final = 500
"""How much is kept of why messages were rejected."""

MAX_WAITING_FOLLOWS: Final = 10_000
"""How many subscriptions of one client, and ends of them, may wait for room."""

Objection = Callable[[Publish], str]
"""Says why messages may not be written, or nothing."""


class Session:
    """What one client asks for, until it is done; and ``feed``, what is for the client."""

    def __init__(
        self,
        node: Node,
        client: str,
        outlet: Outlet,
        objection: Objection | None = None,
        withhold: Withhold | None = None,
        on_room: Callable[[Session], None] | None = None,
        senders: set[InFlight] | None = None,
        may_follow: Callable[[Session, Follows], bool] | None = None,
    ) -> None:
        """``client`` has a mailbox at ``node``. Without an objection it may write to everybody.

        ``on_room`` is told when what waits may go on; without it, it does. With ``senders``, all who have something in flight,
        it shares ``MAX_IN_FLIGHT`` with them. ``may_follow`` says whether a subscription, or the end of one, may go on now; if
        not, ``go_on`` is called when it may.
        """
        self.client = client
        self.feed = MailboxFeed(node, client, outlet, withhold)
        self.in_flight = InFlight(senders)
        self.backlog_bytes = 0
        """How many bytes of messages wait for room."""
        self.saved_bytes = 0
        self.churns = False
        """Whether what waits does so for ``may_follow``."""
        self.large: LargeTurns | None = None
        """The turns of large batches; without, they need none."""
        self.slowed = False
        """Whether nothing that waits may go on now (``server.chatter``)."""
        self._node = node
        self._outlet = outlet
        self._objection = objection
        self._on_room = on_room or Session.go_on
        self._may_follow = may_follow
        self._backlog: deque[tuple[Callable[[Any], None], object]] = deque()
        """What the client asked for and what has not been done yet."""
        self._backlog_messages = 0
        self._backlog_follows = 0
        self._going = False
        self._again = 0
        """The number of the last message that came in once more: each may once, behind a new connection."""
        self._seen = node.directory.state.mailboxes[client].sent
        """The number of the last message that came in."""
        self._later: deque[tuple[int, Callable[[], None]]] = deque()
        """What to tell when messages up to a number are accepted."""

    def publish(self, publish: Publish) -> bool:
        """Messages came from the client; return whether they were to be expected: not the same again and again."""
        first, count = publish.first, publish.count
        last = first + count - 1
        possible = first >= 1 and 1 <= count <= 2 * MAX_UNACCEPTED and last <= MAX_NUMBER
        if not possible or count_messages(publish.messages) != count:
            raise MalformedFrame(f"messages {first} to {last} of {self.client!r} cannot be, or are not there")
        to, topic = publish.to, publish.topic
        if to is not None and (named := _names_bytes(to)) > MAX_RECIPIENTS_BYTES:
            limit = f"MAX_RECIPIENTS_BYTES is {MAX_RECIPIENTS_BYTES}"
            raise MalformedFrame(f"messages {first} to {last} of {self.client!r} name {named} bytes of recipients; {limit}")
        if to is not None and (topic is not None or not to or (len(to) > 1 and len(set(to)) < len(to))):
            raise MalformedFrame(f"messages {first} to {last} of {self.client!r} name nobody, somebody twice, or a topic too")
        if topic is not None:
            _check_topic(topic, self.client)
        if last <= self._seen:  # It was submitted; when it is accepted the client is told, or was told when it came.
            expected, self._again = first > self._again, max(last, self._again)
            return expected
        if first <= self._seen:
            publish = behind(publish, self._seen)
        self._seen = last
        unaccepted = max(self._backlog_messages + publish.count, len(self._later))
        if unaccepted > 2 * MAX_UNACCEPTED or self.backlog_bytes > 2 * MAX_UNACCEPTED_BYTES:
            raise MalformedFrame(f"{self.client!r} does not keep to MAX_UNACCEPTED and MAX_UNACCEPTED_BYTES")
        self.submit(publish)
        return True

    def submit(self, publish: Publish) -> None:
        """Send messages on whose numbers are right: now, or when there is room for them, in order."""
        size = _bytes_of(publish)
        if self._going or self._backlog or self.slowed or not self._has_room(size, 0):
            self._wait(publish)
            return
        self._going = True
        try:
            self._submit(publish, size)
        except Busy:
            self._wait(publish)
            return
        finally:
            self._going = False
        if self._backlog:
            self.go_on()

    def _wait(self, publish: Publish) -> None:
        self._backlog_messages += publish.count
        self.backlog_bytes += _bytes_of(publish)
        self._backlog.append((self._submit_waiting, publish))

    def _submit_waiting(self, publish: Publish) -> None:
        size = _bytes_of(publish)
        self._submit(publish, size)
        self._backlog_messages -= publish.count
        self.backlog_bytes -= size

    def follow(self, topic: str, wanted: bool) -> None:
        """The client follows a topic, or no longer."""
        _check_topic(topic, self.client)
        if self._backlog_follows >= MAX_WAITING_FOLLOWS:
            raise MalformedFrame(
                f"{self.client!r} has more than MAX_WAITING_FOLLOWS ({MAX_WAITING_FOLLOWS}) subscriptions waiting"
            )
        self._backlog_follows += 1
        self._backlog.append((self._announce_waiting, Follows(self.client, topic, wanted)))
        if len(self._backlog) == 1:
            self.go_on()

    def _announce_waiting(self, notice: Follows) -> None:
        node = self._node
        followed = notice.wanted or node.directory.subscriptions.known(notice.client, notice.topic)
        if not followed and not node.reconfiguration.left:
            self._outlet.subscribed(notice.topic, False)  # It follows no such topic: no server need be told.
            self._backlog_follows -= 1
            return
        self.churns = self._may_follow is not None and not self._may_follow(self, notice)
        if self.churns:
            raise Busy(f"{self.client!r} follows and leaves topics too often")
        try:
            node.intake.announce(notice)
        except Busy:
            raise
        except UsageError as error:
            self._outlet.not_subscribed(notice.topic, str(error))
        else:
            self._note_follow()
        self._backlog_follows -= 1

    def _note_follow(self) -> None:
        """Count a subscription as in flight until it is durable."""

        def durable() -> None:
            self.in_flight.land_follow()
            self._landed()

        if self.in_flight.is_shared:
            self.in_flight.add_follow()
            self._node.driver.when_durable(durable)

    def go_on(self) -> None:
        """Do what had to wait, as far as there is room."""
        if not self._going:  # What we do now has made room; we go on anyway.
            while self.next_bytes and self.serve():
                pass

    @property
    def next_bytes(self) -> int:
        """What the next thing costs that waits; 0: nothing does, or it may not be done now."""
        if not self._backlog or self._going or self.slowed:
            return 0
        what = self._backlog[0][1]
        if not isinstance(what, Publish):
            return 0 if self.in_flight.is_full(len(self._backlog)) else MESSAGE_BYTES
        size = _bytes_of(what)
        return MESSAGE_BYTES + size if self._has_room(size, len(self._backlog)) else 0

    def _has_room(self, size: int, waiting: int) -> bool:
        """Return whether a batch may go on, as far as it depends on how much others have on its way."""
        if not self.in_flight.has_room(size, waiting):
            return False
        return size < LARGE_BYTES or self.large is None or self.large.may_begin()

    @property
    def waits_for_large(self) -> bool:
        """Whether what is next is a large batch whose turn it is not."""
        if self.large is None or not self._backlog:
            return False
        what = self._backlog[0][1]
        return isinstance(what, Publish) and _bytes_of(what) >= LARGE_BYTES and not self.large.may_begin()

    def serve(self) -> bool:
        """Do the next thing that waits; return whether there was room."""
        self._going = True
        try:
            action, what = self._backlog[0]
            action(what)
            self._backlog.popleft()
        except Busy:
            return False
        finally:
            self._going = False
        return True

    @property
    def crowded(self) -> bool:
        """Whether so much waits for what is in flight that the client need not be read for a moment.

        What waits for room in a mailbox does not count: what the client says next may be what makes room.
        """
        return len(self._backlog) > CROWD and (self.churns or self.in_flight.is_full(len(self._backlog)))

    @property
    def waiting(self) -> int:
        """How many things the client asked for wait for room."""
        return len(self._backlog)

    def _submit(self, publish: Publish, size: int) -> None:
        last = publish.first + publish.count - 1  # What is told later must not keep the messages.
        self.in_flight.add(last, size)  # Before it is submitted: it may be accepted at once.
        try:
            submitted = self._submit_or_reject(publish) if size < LARGE_BYTES else self._submit_large(publish)
        except Busy:
            self.in_flight.take_back()
            raise
        if self.large is not None and size < LARGE_BYTES:
            self.large.note_small(self.client)
        if not submitted:
            self.in_flight.take_back()
            self._tell_in_turn(lambda: self._outlet.accepted(last))

    def _submit_large(self, publish: Publish) -> bool:
        """Send a large batch on, and note how long it is on its way."""
        if self.large is None:
            return self._submit_or_reject(publish)
        self.large.begin(self.client)
        try:
            submitted = self._submit_or_reject(publish)
        except Busy:
            self.large.stored()
            raise
        self._node.driver.when_durable(self.large.stored)
        return submitted

    def _submit_or_reject(self, publish: Publish) -> bool:
        """Send messages on, or answer that they never will be; return whether there was anything to do."""
        first, count = publish.first, publish.count
        reason = "" if self._objection is None else self._objection(publish)
        if reason:
            self._reject(first, count, reason, forbidden=True)
            return True
        try:
            return self._node.intake.submit(Batch(self.client, first, count, publish.to, publish.topic, publish.messages))
        except Busy:
            raise
        except UsageError as error:
            self._reject(first, count, str(error), forbidden=False)
            return True

    def _reject(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        self._node.intake.reject(Rejected(self.client, first, count, reason[:MAX_REASON_CHARACTERS], forbidden))

    def _tell_in_turn(self, tell: Callable[[], None]) -> None:
        """Tell the client when everything before has been accepted."""
        submitted = self._node.directory.state.mailboxes[self.client].sent
        if self._node.intake.accepted_of(self.client) >= submitted:
            tell()
        else:
            self._later.append((submitted, tell))

    def answered(self, _: str, upto: int, rejected: Rejected | None = None) -> None:
        """Messages of the client are accepted, or never will be."""
        if rejected is None:
            self._outlet.accepted(upto)
        else:
            self._outlet.undeliverable(rejected.first, rejected.count, rejected.reason, forbidden=rejected.forbidden)
        while self._later and self._later[0][0] <= upto:
            self._later.popleft()[1]()
        self.in_flight.land(upto)
        if self._backlog:
            self._landed()

    def _landed(self) -> None:
        """Something is durable: what waits may go on."""
        if self._backlog and not self._going:
            self._on_room(self)


def _names_bytes(to: tuple[str, ...]) -> int:
    return sum(map(len, to))


def _bytes_of(publish: Publish) -> int:
    """Return what messages count for while they wait: they, and whom they are for."""
    to, size = publish.to, len(publish.messages)
    if to is None:
        return size
    return size + (len(to[0]) if len(to) == 1 else _names_bytes(to))


def _check_topic(topic: str, client: str) -> None:
    if not 0 < len(topic) <= MAX_TOPIC_CHARACTERS:
        raise MalformedFrame(f"a topic of {len(topic)} characters from {client!r}; it must have 1 to {MAX_TOPIC_CHARACTERS}")


def behind(publish: Publish, seen: int) -> Publish:
    """Return the messages of a batch behind a number: a program that does its work again may batch otherwise."""
    messages = read_messages(publish.messages, "a client")[seen - publish.first + 1 :]
    return msgspec.structs.replace(publish, first=seen + 1, count=len(messages), messages=write_messages(messages))
