"""What a program sees: send, publish, ask, listen. The same whether a server is in between or the member is in the program.

Rules:

* ``post`` and friends only queue: consecutive letters for the same recipients leave as one bundle, at the end of the turn of the
  loop or when the bundle is large. ``send`` and friends also wait until the letter is accepted: durable, where that is asked for.
* At most ``MAX_UNACCEPTED`` letters, and ``MAX_UNACCEPTED_BYTES`` of them, are on their way. ``send`` then waits; ``post`` raises
  ``Busy``.
* Letters come in order. A letter counts as done, and will not come again, when the iterator is asked for the next one or when
  its handler has returned. Until then it comes again after a crash. A handler that raises ends the endpoint: nothing behind its
  letter can be done before it.
* The news of a view (docs/removal.md) comes in its turn among the messages, to the handler given to ``on_view``. It counts as
  done like a message.
* Letters that cannot be read are left out, and count as done: whoever wrote them must not be able to stop what comes behind.
  ``unreadable`` is told.
* Credit: the other side sends at most ``WINDOW_LETTERS`` letters beyond what is done. A slow program so slows down who writes to
  it, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from thence.core.views import NewView
from thence.errors import Busy, InternalError, MalformedFrame, NotAllowed, UsageError
from thence.runtime.acks import Acks
from thence.runtime.awaiting import Awaited, Awaiting
from thence.runtime.inbox import BatchHandler, Handler, Inbox, Owner
from thence.runtime.letters import (
    EVERYONE,
    MAX_LETTER_BYTES,
    Message,
    To,
    checked_headers,
    checked_topic,
    recipient,
    recipients,
    written_body,
)
from thence.runtime.names import RETURNED
from thence.runtime.protocol import Letter, Publish, claimed_letters, read_letters, write_letters
from thence.runtime.requests import Requests
from thence.runtime.spans import spans_of_program
from thence.runtime.turns import turn_of
from thence.runtime.view_news import ViewHandler

MAX_UNACCEPTED: Final = 65_536
MAX_UNACCEPTED_BYTES: Final = 64 * 1024 * 1024
BUNDLE_LETTERS: Final = 512
"""How many letters a bundle holds at most."""
BUNDLE_BYTES: Final = 512 * 1024
"""From this size on a bundle takes no more letters."""
LETTER_WEIGHT: Final = 16
"""What a letter counts for in limits by bytes, beside its body."""
CLOSE_TIMEOUT_S: Final = 30.0
"""How long whoever leaves waits while nothing more is accepted."""


class Endpoint(Awaiting):
    """See the module's text."""

    def __init__(self, name: str) -> None:
        """Start with nothing sent; ``_resume`` says where to go on."""
        self.name = name
        self._myself = weakref.ref(self)
        self._loop = asyncio.get_running_loop()
        self._soon = turn_of(self._loop).soon
        self._number = 0
        self._accepted = 0
        self._unaccepted_bytes = 0
        self._sizes: deque[tuple[int, int]] = deque()
        """The last number and the bytes of each bundle that is not accepted."""
        self._bundle: list[Letter] = []
        self._bundle_bytes = 0
        self._bundle_to: tuple[tuple[str, ...] | None, str | None] = (None, None)
        self._filling: To | None = None
        """To whom, as the program wrote it, the letters of the bundle go that ``post`` may add to without further checks,"""
        self._most = 0
        """up to so many."""
        self._flushing = False
        self._refusals: dict[int, UsageError] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._room: asyncio.Event = asyncio.Event()
        self._short_of_room = False
        """Whether somebody waits for it."""
        self._requests = Requests()
        self._acks = Acks(self._acknowledge)
        owner = Owner(self._check_usable, lambda error: self.unreadable(error), self._handler_failed)  # noqa: PLW0108  It is replaced.
        self._inbox = Inbox(name, self._acks, owner)
        self._awaited = Awaited()
        self._usable = False
        """Whether it was entered, has not failed and is not closed."""
        self._failure: Exception | None = None
        self._failure_seen = False
        """Whether the program was told."""
        self._closed = False
        self._spans = spans_of_program(name)

    # What is between us and the others.

    @abstractmethod
    def _transmit(self, publish: Publish) -> None:
        """Send a bundle on. It is kept by whoever implements this until it is accepted."""

    @abstractmethod
    def _acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        """Tell what is done, and up to where more may come; ``answer``: and that ``Acks.on_durable`` is wanted then."""

    @abstractmethod
    async def subscribe(self, topic: str) -> None:
        """Get what is published on a topic from here on. Returns when that holds here; causally later publishers know of it."""

    @abstractmethod
    async def unsubscribe(self, topic: str) -> None:
        """Get no more of it."""

    @abstractmethod
    async def known(self, name: str) -> None:
        """Wait until a client of this name is known here, so that it can be written to."""

    @abstractmethod
    async def _until_stable(self) -> None:
        """Wait until all have what was accepted so far."""

    # Sending.

    async def send(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to one, several or ``EVERYONE``, and wait until it is accepted. Bodies that are no bytes are coded as msgpack."""
        await self._sent(recipients(to), None, body, headers)

    async def publish(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to all who follow a topic, and wait until it is accepted."""
        await self._sent(None, checked_topic(topic), body, headers)

    def post(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send without waiting. ``Busy`` if too much is on its way already; ``flush`` waits for all of it."""
        if self._filling is not None and to == self._filling and type(body) is bytes and headers is None:
            size = len(body) + LETTER_WEIGHT
            if self._bundle_bytes + size <= BUNDLE_BYTES and len(self._bundle) < self._most:
                self._number += 1
                self._unaccepted_bytes += size
                self._bundle_bytes += size
                self._bundle.append(Letter(body))
                return
        self._post((to,) if type(to) is str else recipients(to), None, body, headers)
        if self._spans is None and (type(to) is str or to is EVERYONE):
            self._filling = to
            self._most = min(BUNDLE_LETTERS, MAX_UNACCEPTED - self._number + self._accepted + len(self._bundle))

    def post_topic(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish without waiting, as ``post`` sends."""
        self._post(None, checked_topic(topic), body, headers)

    async def request(self, to: str, body: Any, *, headers: Mapping[str, str] | None = None, within: float = 30.0) -> Message:
        """Send a request and return the reply, which only who was asked can give. Other messages go on coming in meanwhile."""
        (whom,) = recipient(to)
        await self.room()
        request, reply = self._requests.ask(whom)
        try:
            self._post((whom,), None, body, headers, request=request)
            async with asyncio.timeout(within):
                await self._until(self._number)
                return await reply
        except TimeoutError:
            raise TimeoutError(f"no reply from {to!r} within {within:g} s") from None
        finally:
            self._requests.forget(request)

    def reply(self, message: Message, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request; the answer is queued, as with ``post``."""
        if not message.wants_reply:
            raise UsageError(f"the message from {message.sender!r} asks for no reply")
        self._post((message.sender,), None, body, headers, reply=message.letter.request)

    @property
    def stray_replies(self) -> int:
        """How many replies were left out: no request waited for them any more, or somebody else was asked."""
        return self._requests.stray

    async def flush(self) -> None:
        """Wait until everything that was posted is accepted."""
        self._check_usable()
        await self._until(self._number)

    async def stable(self) -> None:
        """Wait until everything that was sent is in the stores of all its recipients' servers: no crash loses it any more.

        Only in fabrics with ``stability = true``; elsewhere it is a ``UsageError``.
        """
        await self.flush()
        await self._until_stable()

    async def room(self) -> None:
        """Wait until ``post`` would not be refused as busy."""
        while self._full():
            self._check_usable()
            self._room.clear()
            self._short_of_room = True
            self._send_bundle()
            await self._room.wait()
        self._check_usable()

    async def _sent(self, to: tuple[str, ...] | None, topic: str | None, body: Any, headers: Mapping[str, str] | None) -> None:
        if self._full():
            await self.room()
        self._post(to, topic, body, headers)
        await self._until(self._number)

    def _post(
        self,
        to: tuple[str, ...] | None,
        topic: str | None,
        body: Any,
        headers: Mapping[str, str] | None,
        *,
        request: int = 0,
        reply: int = 0,
    ) -> None:
        if not self._usable:
            self._check_usable()
        if self._number - self._accepted >= MAX_UNACCEPTED or self._unaccepted_bytes >= MAX_UNACCEPTED_BYTES:
            raise Busy(
                f"{self._number - self._accepted} letters of {self._unaccepted_bytes} bytes are not accepted yet; the limits are "
                f"MAX_UNACCEPTED ({MAX_UNACCEPTED}) and MAX_UNACCEPTED_BYTES ({MAX_UNACCEPTED_BYTES})"
            )
        written, coded = (body, False) if type(body) is bytes and len(body) <= MAX_LETTER_BYTES else written_body(body)
        headers = checked_headers(headers) if headers else None
        if self._spans is not None:
            headers = self._spans.sending(self._number + 1, headers, topic or ", ".join(to or ("everyone",)))
        letter = Letter(written, coded, headers, request, reply)
        recipients = (to, topic)
        size = len(written) + LETTER_WEIGHT
        if self._bundle and (
            recipients != self._bundle_to or self._bundle_bytes + size > BUNDLE_BYTES or len(self._bundle) >= BUNDLE_LETTERS
        ):
            self._send_bundle()
        self._number += 1
        self._unaccepted_bytes += size
        self._bundle.append(letter)
        self._bundle_bytes += size
        self._bundle_to = recipients
        self._filling = None
        if not self._flushing:
            self._flushing = True
            self._soon(self._send_bundle)

    def _full(self) -> bool:
        return self._number - self._accepted >= MAX_UNACCEPTED or self._unaccepted_bytes >= MAX_UNACCEPTED_BYTES

    def _send_bundle(self) -> None:
        """Send the letters that were collected."""
        self._flushing = False
        letters = self._bundle
        if not letters or self._closed:
            return
        to, topic = self._bundle_to
        self._sizes.append((self._number, self._bundle_bytes))
        self._bundle, self._bundle_bytes, self._filling = [], 0, None
        first = self._number - len(letters) + 1
        self._transmit(Publish(first, len(letters), to, topic, write_letters(letters), bool(self._waiters)))

    async def _until(self, number: int) -> None:
        """Wait until a letter is accepted; raise if it never will be."""
        if self._accepted < number:
            self._check_usable()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((number, waiter))
            await waiter
        if self._refusals and number in self._refusals:
            raise self._refusals.pop(number)

    def _on_accepted(self, upto: int) -> None:
        """Everything up to this number is answered for."""
        if upto <= self._accepted:
            return
        self._accepted = upto
        if self._spans is not None:
            self._spans.accepted(self.name, upto)
        sizes = self._sizes
        while sizes and sizes[0][0] <= upto:
            self._unaccepted_bytes -= sizes.popleft()[1]
        while self._waiters and self._waiters[0][0] <= upto:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._short_of_room:
            self._short_of_room = False
            self._room.set()

    def _on_undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """These letters will not be accepted. Whoever waits for one of them is told; what was posted is in ``refused``."""
        waited = {number for number, _ in self._waiters}
        for number in range(max(first, self._accepted + 1), first + count):  # Of the others we have heard before.
            if number in waited:
                self._refusals[number] = NotAllowed(reason) if forbidden else UsageError(reason)
            else:
                self.refused(reason)
        self._on_accepted(first + count - 1)

    def refused(self, reason: str) -> None:
        """Called for letters that were posted and that nobody waits for. Meant to be replaced; by default it is a warning."""
        self._loop.call_exception_handler({"message": f"thence: a posted message was refused: {reason}"})

    # Listening.

    def on_message(self, handler: Handler) -> None:
        """Call ``handler`` with each message, in order, from the loop. A message is done when it returns.

        It may be ``async``, or return anything else to be awaited: the message is done when that has ended, and only then
        the next one comes. A plain one must not block. If it raises, the endpoint ends; but if it raises ``MalformedFrame``, as
        ``Message.value`` does, the message is left out, and ``unreadable`` is told.
        """
        self._inbox.on_message(handler)

    def on_batch(self, handler: BatchHandler) -> None:
        """Call ``handler`` with all messages that came together. This is the quickest way to listen. It may be ``async`` too."""
        self._inbox.on_batch(handler)

    def on_view(self, handler: ViewHandler) -> None:
        """Call ``handler`` when the fabric has changed, in the order of the messages: all before it are of the old view.

        At every server the same messages come before it. It must not block, and may send; it may be ``async``, as for messages.
        """
        self._inbox.on_view(handler)

    @property
    def view(self) -> NewView | None:
        """The view of which this endpoint was told last; None: there was no change since it was made."""
        return self._inbox.views.view

    def __aiter__(self) -> AsyncIterator[Message]:
        self._check_entered()
        self._inbox.check_asking()
        return self._inbox.messages()

    async def receive(self, within: float | None = None) -> Message:
        """Return the next message, or raise ``TimeoutError`` if none comes within so many seconds.

        It counts as done when the next one is asked for, with ``done``, or when the block is left without an error.
        """
        self._check_entered()
        self._inbox.check_asking()
        return await self._inbox.receive(within)

    def done(self) -> None:
        """Say that the message last received is done with: it will not come again."""
        self._inbox.done()

    def _on_deliver(self, position: int, skip: int, sender: str, topic: str | None, written: bytes, everyone: bool) -> None:
        """Letters have come. What came before is left out: the other side may not have heard that it did."""
        if self._failure is not None:
            return
        first = position - skip
        try:
            letters = read_letters(written, sender)
        except MalformedFrame as error:
            self._leave_out(first + claimed_letters(written) - 1, error)
            return
        if first != self._inbox.received + 1:
            if position > self._inbox.received + 1:
                raise InternalError(f"letter {position} of {self.name!r} came after {self._inbox.received}")
            had = self._inbox.received + 1 - first
            letters, first = letters[had:], first + had
        if not letters:
            return
        self._acks.untold_bytes += len(written)
        me, replies, fresh, at = self._myself, False, [], first
        for letter in letters:
            fresh.append(Message(me, at, sender, topic, letter, letter.body))
            if self._spans is not None and letter.headers is not None:
                self._spans.received(letter.headers, sender)
            at += 1
            if letter.reply:
                replies = True
        if sender.startswith(RETURNED):
            self._hand_back(fresh, at - 1)
            return
        if replies:
            fresh = self._hand_replies(fresh, everyone)
        if not self._failed:
            self._inbox.hand(fresh, at - 1)

    def _hand_back(self, messages: Sequence[Message], last: int) -> None:
        """Messages of ours have come back."""
        for message in messages:
            self.returned(message, message.sender.removeprefix(RETURNED))
        self._inbox.skip(last)

    def returned(self, message: Message, to: str) -> None:
        """Called for a message of ours to ``to`` that was accepted and has come back, since that client has lost its name.

        The client may have handled it all the same. Meant to be replaced; by default it is a warning.
        """
        where = f"to {to!r}, which has lost its name"
        self._loop.call_exception_handler({"message": f"thence: a message of {self.name!r} came back, undeliverable: {where}"})

    def _leave_out(self, last: int, error: MalformedFrame) -> None:
        """Everything up to ``last`` has come, and cannot be read. What came before may still be waiting to be done."""
        if last <= self._inbox.received:
            return  # It was left out before.
        self.unreadable(error)
        self._inbox.skip(last)

    def unreadable(self, error: MalformedFrame) -> None:
        """Called for letters that cannot be read, and are left out. Meant to be replaced; by default it is a warning."""
        self._loop.call_exception_handler({"message": f"thence: messages for {self.name!r} are left out: {error}"})

    @property
    def _failed(self) -> bool:
        """Whether a handler has failed meanwhile."""
        return self._failure is not None

    def _hand_replies(self, messages: Sequence[Message], everyone: bool) -> list[Message]:
        """Hand over what comes up to the last reply, each in its turn; return what comes behind it."""
        others: list[Message] = []
        for message in messages:
            if not message.letter.reply:
                others.append(message)
                continue
            if others:
                self._inbox.hand(others, others[-1].position)
                others = []
            if self._failure is not None:
                break
            self._inbox.received = message.position
            self._replied(message, everyone)
        return others

    def _replied(self, message: Message, everyone: bool) -> None:
        """Give a reply to whoever waits for it; otherwise it is left out."""
        wrong = self._requests.replied(message, everyone=everyone)
        if wrong:
            self._loop.call_exception_handler({"message": f"thence: {self.name!r} leaves out {wrong}"})

    # The end.

    def _check_entered(self) -> None:
        if not self._usable and self._failure is None and not self._closed:
            raise UsageError(f"{self.name!r} is not connected: use it in an 'async with' block")

    def _check_usable(self) -> None:
        self._check_entered()
        if self._failure is not None:
            self._failure_seen = True
            raise self._failure
        if self._closed:
            raise UsageError(f"{self.name!r} is closed")

    def _enter(self) -> None:
        """The program enters the block in which this is used."""
        if self._closed or self._usable:
            raise UsageError(f"{self.name!r} was used in a block already: make another one")
        self._usable = True

    async def _leave_block(self, *, orderly: bool, within: float | None) -> None:
        """End what is in hand and wait until all that was sent is accepted and what is done is on disk; or end at once."""
        if self._closed:
            return
        if orderly and self._failure is None and not self._nothing_left(asyncio.current_task()):
            await self._patiently(self._end_in_order(asyncio.current_task()), within)
        await self._inbox.end_at_once()
        self._acks.tell()
        if orderly and self._failure is not None and not self._failure_seen:
            raise self._failure

    def _nothing_left(self, who: object) -> bool:
        """Return whether there is nothing to wait for when ``who`` leaves."""
        if self._inbox.busy:
            return False
        self._inbox.release(who)
        return self._accepted == self._number and self._acks.ask()

    async def _end_in_order(self, who: object) -> None:
        await self._inbox.end_in_order(who)
        await self.flush()
        await self._until_durable()

    async def _until_durable(self) -> None:
        """Wait until the other side has on disk what is done."""
        await self._acks.durable()

    async def _patiently(self, work: Coroutine[Any, Any, None], within: float | None) -> None:
        """Wait for something as long as more is accepted from time to time."""
        task = self._loop.create_task(work)
        try:
            accepted = -1
            while accepted < self._accepted:
                accepted = self._accepted
                await asyncio.wait((task,), timeout=within)
                if task.done():
                    return task.result()
            raise TimeoutError(self._left_behind(within or 0.0))
        finally:
            task.cancel()

    def _left_behind(self, within: float) -> str:
        """Say what was not done in time when the program left."""
        unaccepted = self._number - self._accepted
        if self._inbox.busy:
            what = "a handler still awaits something; its message is not done, and comes again"
        elif unaccepted:
            what = f"{unaccepted} messages were not accepted"
        else:
            what = f"it is not known that the server has noted what is done, up to message {self._acks.done}: it may come again"
        return f"{self.name!r} was left, and nothing happened for {within:g} s (close_timeout): {what}"

    def _handler_failed(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"thence: a handler of {self.name!r} failed", "exception": error})
        self._fail(error, logged=True)

    def _others_waiting(self) -> Iterable[asyncio.Future[Any]]:
        """Return what else somebody may wait for."""
        return ()

    def _fail(self, failure: Exception, *, logged: bool = False) -> None:
        """Nothing can be done any more: tell everybody who waits, and who calls later; if nobody waits, the loop's handler."""
        if self._failure is not None:
            return
        self._failure = failure
        self._filling = None
        self._usable = False
        self._inbox.stopped = True
        if self._wake_all(failure):
            self._failure_seen = True
        elif not logged:
            context = {"message": f"thence: {self.name!r} has ended, and nobody waits for anything", "exception": failure}
            self._loop.call_exception_handler(context)

    def _close(self) -> None:
        """Nothing is done any more, since the program wants it so."""
        self._closed = self._acks.closed = self._inbox.stopped = True
        self._usable = False
        self._wake_all(UsageError(f"{self.name!r} is closed"))

    def _wake_all(self, failure: Exception) -> bool:
        """Tell everybody who waits, and return whether anybody does."""
        all_of_them: list[asyncio.Future[Any]] = [waiter for _, waiter in self._waiters]
        all_of_them += (*self._requests.waiting, *self._others_waiting())
        waiting = [one for one in all_of_them if not one.done()]
        for one in waiting:
            one.set_exception(failure)
        self._waiters.clear()
        woken = bool(waiting) or self._short_of_room or self._inbox.waited_for
        woken = self._awaited.fail(failure) or woken
        self._short_of_room = False
        self._room.set()
        self._acks.fail(failure)
        self._inbox.wake()
        return woken
