"""One client at its server: what it sends goes to the node, what waits in its mailbox goes to it.

The client may be at the other end of a connection (``server.server``) or in the same program (``client.embedded``).

Rules:

* Batches come in with numbers. One that was submitted before is not submitted again, whatever was lost in between.
* What the node cannot take now waits here, in order; the client's own limit on unaccepted messages bounds it.
* A client has ``IN_FLIGHT_BYTES`` of messages at most that are submitted and not durable, or one batch: others do not have much
  of it before theirs on the way to the disk. What waits is served in turn with that of others (``node.fair_turns``).
* However short they are, a client has ``MAX_IN_FLIGHT`` batches and subscriptions on that way. All with more than ``FEW_WAITING``
  beside them share that: each has an equal part, and ``LEAST_IN_FLIGHT`` at least. Whoever sends little does not wait for those
  who send much, but for a short commit of theirs.
* A client is told of acceptance in order: never of a message before all earlier ones.
* Messages go out as far as the client's credit and its connection take them, and ``WINDOW_BYTES`` of them that are not done
  with. So a slow client has bounded work in its memory, however large its messages are.
* What cannot be is refused before anything is done: numbers that no client reaches, recipients twice, a topic beside recipients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.net.names import MAX_TOPIC_CHARACTERS
from thence.net.protocol import (
    MAX_NUMBER,
    MAX_RECIPIENTS_BYTES,
    MAX_UNACCEPTED,
    MAX_UNACCEPTED_BYTES,
    WINDOW_MESSAGES,
    Publish,
    count_messages,
    read_messages,
    write_messages,
)
from thence.node.driver.commits import COMMIT_BYTES
from thence.node.fair_turns import MESSAGE_BYTES
from thence.node.node import Node
from thence.storage.bodies import Follows
from thence.storage.mailbox import Batch, Mailbox
from thence.storage.rejections import Rejected
from thence.storage.spill import Reader


class Outlet(Protocol):
    """The way to a client."""

    def accepted(self, upto: int) -> None:
        """Its messages up to this number are accepted."""

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """These of its messages never will be; ``forbidden``: since it may not write them."""

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        """Messages for it."""

    def subscribed(self, topic: str, wanted: bool) -> None:
        """It follows a topic, or no longer."""

    def not_subscribed(self, topic: str, reason: str) -> None:
        """That cannot be done here any more."""

    def told_safe(self, upto: int, reason: str) -> None:
        """All messages for it up to a position are safe; or nobody finds out, for this reason."""

    def damaged(self, error: StorageError) -> None:
        """What is kept for it cannot be read; nothing more comes."""

    @property
    def blocked(self) -> bool:
        """Whether it takes nothing for now; ``Session.feed`` is called when it does again."""


WINDOW_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of messages a client is given that it is not done with, and one batch more."""

IN_FLIGHT_BYTES: Final = COMMIT_BYTES
"""How many bytes of messages of one client may be on their way to the disk: about what one commit takes."""

MAX_IN_FLIGHT: Final = 1_024
"""How many batches and subscriptions of a client may be on that way: others wait for what is done when they arrive."""

FEW_WAITING: Final = 32
"""With more than this beside them, a client shares that with others."""

LEAST_IN_FLIGHT: Final = 16
"""How many it has then, however many others there are."""

CROWD: Final = 4_096
"""How many things of one client may wait for its part of that before it is read more slowly."""

MAX_REASON_CHARACTERS: Final = 500
"""How much is kept of why messages were rejected."""

MAX_WAITING_FOLLOWS: Final = 10_000
"""How many subscriptions of one client, and ends of them, may wait for room."""

Objection = Callable[[Publish], str]
"""Says why messages may not be written, or nothing."""

Withhold = Callable[[int, int, Batch], bool]
"""Takes what ``Outlet.deliver`` takes; says whether the client does not get it, and has told it so."""


class Session:
    """See the module's text."""

    def __init__(
        self,
        node: Node,
        client: str,
        outlet: Outlet,
        objection: Objection | None = None,
        withhold: Withhold | None = None,
        on_room: Callable[[Session], None] | None = None,
        senders: set[Session] | None = None,
        may_follow: Callable[[Session, Follows], bool] | None = None,
    ) -> None:
        """``client`` has a mailbox at ``node``. Without an objection it may write to everybody.

        ``on_room`` is told when what waits may go on; without it, it does. With ``senders``, all who have something in flight,
        it shares ``MAX_IN_FLIGHT`` with them. ``may_follow`` says whether a subscription, or the end of one, may go on now; if
        not, ``go_on`` is called when it may.
        """
        self.client = client
        self.limit = 0
        self._node = node
        self._outlet = outlet
        mailbox = self._mailbox
        self._next = mailbox.front
        """The position of the first message of the next batch to send."""
        self._handed: deque[tuple[int, int]] = deque()
        """Batches that the client has and is not done with: the position of the last message of each, and how many bytes,"""
        self._handed_bytes = 0
        """and of all of them."""
        self._reader = Reader(node.directory.mailboxes.spill, client)
        self._backlog: deque[tuple[Callable[[Any], None], object]] = deque()
        """What the client asked for and what has not been done yet."""
        self._acknowledged = node.acknowledgements.of(client)
        """Up to which position the client has done with its messages: here and in earlier connections."""
        self._backlog_messages = 0
        self._backlog_bytes = 0
        self._backlog_follows = 0
        self._objection = objection
        self._on_room = on_room or Session.go_on
        self._withhold = withhold
        self._going = False
        self.saved_bytes = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        """Batches that are submitted and not answered: the number of the last message of each, and how many bytes,"""
        self._in_flight_bytes = 0
        """and of all of them."""
        self._follows_in_flight = 0
        self._may_follow = may_follow
        self.churns = False
        """Whether what waits does so for ``may_follow``."""
        self._senders = senders
        self.slowed = False
        """Whether nothing that waits may go on now (``server.chatter``)."""
        self._again = 0
        """The number of the last message that came in once more: each may once, behind a new connection."""
        self._seen = mailbox.sent
        """The number of the last message that came in."""
        self._later: deque[tuple[int, Callable[[], None]]] = deque()
        """What to tell when messages up to a number are accepted."""
        self._told_safe: tuple[int, str] | None = None
        """What the client was told to be safe, or why it is not told; None: it does not want to know."""

    @property
    def _mailbox(self) -> Mailbox:
        return self._node.directory.state.mailboxes[self.client]

    # What the client sends.

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
        if unaccepted > 2 * MAX_UNACCEPTED or self._backlog_bytes > 2 * MAX_UNACCEPTED_BYTES:
            raise MalformedFrame(f"{self.client!r} does not keep to MAX_UNACCEPTED and MAX_UNACCEPTED_BYTES")
        self.submit(publish)
        return True

    @property
    def backlog_bytes(self) -> int:
        """How many bytes of messages wait for room."""
        return self._backlog_bytes

    def submit(self, publish: Publish) -> None:
        """Send messages on whose numbers are right: now, or when there is room for them, in order."""
        if self._going or self._backlog or self.slowed or self._has_much_in_flight(publish):
            self._wait(publish)
            return
        self._going = True
        try:
            self._submit(publish)
        except Busy:
            self._wait(publish)
            return
        finally:
            self._going = False
        if self._backlog:
            self.go_on()

    def _wait(self, publish: Publish) -> None:
        self._backlog_messages += publish.count
        self._backlog_bytes += _bytes_of(publish)
        self._backlog.append((self._submit_waiting, publish))

    def _submit_waiting(self, publish: Publish) -> None:
        self._submit(publish)
        self._backlog_messages -= publish.count
        self._backlog_bytes -= _bytes_of(publish)

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
        """A subscription is on its way to the disk."""

        def durable() -> None:
            self._follows_in_flight -= 1
            self._landed()

        if self._senders is not None:
            self._follows_in_flight += 1
            self._count_in_flight()
            self._node.driver.when_durable(durable)

    def followed(self, notice: Follows) -> None:
        """That has come to pass."""
        self._outlet.subscribed(notice.topic, notice.wanted)

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
            return 0 if self._has_many_in_flight() else MESSAGE_BYTES
        return 0 if self._has_much_in_flight(what) else MESSAGE_BYTES + _bytes_of(what)

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

    def _has_much_in_flight(self, publish: Publish) -> bool:
        much = self._in_flight_bytes > 0 and self._in_flight_bytes + _bytes_of(publish) > IN_FLIGHT_BYTES
        return much or self._has_many_in_flight()

    def _has_many_in_flight(self) -> bool:
        """Whether it has its part of what all may have in flight."""
        number = len(self._in_flight) + self._follows_in_flight
        if self._senders is None or number < LEAST_IN_FLIGHT:
            return False
        return number >= (MAX_IN_FLIGHT if len(self._backlog) <= FEW_WAITING else MAX_IN_FLIGHT // len(self._senders))

    @property
    def crowded(self) -> bool:
        """Whether so much waits for what is in flight that the client need not be read for a moment.

        What waits for room in a mailbox does not count: what the client says next may be what makes room.
        """
        return len(self._backlog) > CROWD and (self.churns or self._has_many_in_flight())

    def _count_in_flight(self) -> None:
        """Be one of those who share what may be in flight, or no longer."""
        if self._senders is None:
            return
        if self._in_flight or self._follows_in_flight:
            self._senders.add(self)
        else:
            self._senders.discard(self)

    def leave(self) -> None:
        """The client is gone: others may have its part."""
        if self._senders is not None:
            self._senders.discard(self)
            self._senders = None

    @property
    def waiting(self) -> int:
        """How many things the client asked for wait for room."""
        return len(self._backlog)

    def _submit(self, publish: Publish) -> None:
        first, count = publish.first, publish.count  # What is told later must not keep the messages.
        size = _bytes_of(publish)
        self._in_flight.append((first + count - 1, size))  # Before it is submitted: it may be accepted at once.
        self._in_flight_bytes += size
        self._count_in_flight()
        try:
            submitted = self._submit_or_reject(publish)
        except Busy:
            self._forget_last(size)
            raise
        if not submitted:
            self._forget_last(size)
            self._tell_in_turn(lambda: self._outlet.accepted(first + count - 1))

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

    def _forget_last(self, size: int) -> None:
        """What was noted last is not in flight."""
        self._in_flight.pop()
        self._in_flight_bytes -= size
        self._count_in_flight()

    def _reject(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        self._node.intake.reject(Rejected(self.client, first, count, reason[:MAX_REASON_CHARACTERS], forbidden))

    def _tell_in_turn(self, tell: Callable[[], None]) -> None:
        """Tell the client when everything before has been accepted."""
        submitted = self._mailbox.sent
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
        while self._in_flight and self._in_flight[0][0] <= upto:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        self._landed()

    def _landed(self) -> None:
        """Something is durable: what waits may go on."""
        self._count_in_flight()
        if self._backlog and not self._going:
            self._on_room(self)

    # What is for the client.

    def acknowledge(self, upto: int, limit: int, then: Callable[[], None] | None = None) -> bool:
        """The client has done with its messages up to a position, and takes more up to another; ``then``: when that is on disk.

        Return whether it says more than before.
        """
        mailbox = self._mailbox
        if upto > mailbox.position or limit > upto + WINDOW_MESSAGES:
            raise MalformedFrame(f"{self.client!r} acknowledges message {upto} of {mailbox.position} and takes up to {limit}")
        news = upto > self._acknowledged or limit > self.limit
        self.limit = max(self.limit, limit)
        if upto > self._acknowledged:
            self._acknowledged = upto
            handed = self._handed
            while handed and handed[0][0] <= upto:
                self._handed_bytes -= handed.popleft()[1]
            self._node.acknowledgements.acknowledge(self.client, upto, then)
        elif then is not None:
            self._node.acknowledgements.acknowledge(self.client, self._acknowledged, then)
        self.feed()
        return news

    def hand(self, batch: Batch) -> bool:
        """Hand messages to a program in this very process, if it takes them now: then they need no place in its mailbox."""
        mailbox, first = self._mailbox, self._next
        if first != mailbox.position + 1 or first > self.limit or not mailbox.pass_by(batch):
            return False
        self._next += batch.count
        self._outlet.deliver(first, 0, batch)
        return True

    def want_safety(self) -> None:
        """The client wants to be told what of its messages is safe, from now on; it is told at once where that stands."""
        self._told_safe = (-1, "")
        self.tell_safe()

    def tell_safe(self) -> None:
        """Tell the client what of the messages that were sent to it is safe, if it wants to know and that is news."""
        if self._told_safe is None or self._outlet.blocked or self.client not in self._node.directory.state.mailboxes:
            return
        upto, reason = max(0, self._told_safe[0]), self._node.why_unknown
        if not reason:
            upto = max(upto, min(self._node.safe_of(self.client), max(self._next - 1, self._acknowledged)))
        if upto > self._told_safe[0] or reason != self._told_safe[1]:
            self._told_safe = (upto, reason)
            self._outlet.told_safe(upto, reason)

    def feed(self) -> None:
        """Send the client what it takes."""
        mailbox = self._node.directory.state.mailboxes.get(self.client)
        if mailbox is None:
            return  # It has lost its name, and its connection ends.
        outlet = self._outlet
        while (first := self._next) <= mailbox.position and first <= self.limit and not outlet.blocked:
            if self._handed_bytes >= WINDOW_BYTES:
                break
            batch = mailbox.waiting.get(first)
            if batch is None:
                if first < mailbox.front:  # It was acknowledged before it was sent: by an earlier connection.
                    self._next = mailbox.front
                    continue
                try:
                    first, batch = self._reader.at(mailbox, first, self._acknowledged)
                except StorageError as error:
                    outlet.damaged(error)
                    return
            self._next = first + batch.count
            if self._acknowledged >= self._next - 1:
                continue
            self._handed.append((self._next - 1, len(batch.messages)))
            self._handed_bytes += len(batch.messages)
            skip = max(0, self._acknowledged - first + 1)
            if batch.topic is None or self._withhold is None or not self._withhold(first + skip, skip, batch):
                outlet.deliver(first + skip, skip, batch)
        if self._told_safe is not None:
            self.tell_safe()


def _names_bytes(to: tuple[str, ...]) -> int:
    return len(to[0]) if len(to) == 1 else sum(map(len, to))


def _bytes_of(publish: Publish) -> int:
    """Return what messages count for while they wait: they, and whom they are for."""
    return len(publish.messages) if publish.to is None else len(publish.messages) + _names_bytes(publish.to)


def _check_topic(topic: str, client: str) -> None:
    if not 0 < len(topic) <= MAX_TOPIC_CHARACTERS:
        raise MalformedFrame(f"a topic of {len(topic)} characters from {client!r}; it must have 1 to {MAX_TOPIC_CHARACTERS}")


def behind(publish: Publish, seen: int) -> Publish:
    """Return the messages of a batch behind a number: a program that does its work again may batch otherwise."""
    messages = read_messages(publish.messages, "a client")[seen - publish.first + 1 :]
    return msgspec.structs.replace(publish, first=seen + 1, count=len(messages), messages=write_messages(messages))
