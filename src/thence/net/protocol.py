"""What servers and clients say to each other: one small struct per kind of frame.

Rules:

* The first byte of a frame is ``PACKET``, and a packet of the core follows (``core.member.codec``), or ``CONTROL``, and one of
  the structs below follows as msgpack, told apart by its tag.
* The first frame in either direction is a hello or its answer. A hello says which protocols its sender speaks, the answer which
  one is spoken: the newest that both know. If there is none, that is refused with both sides named, before anything else is read.
* Within a protocol, fields are only added, at the end and with a default: whoever does not know them leaves them out. Hellos,
  their answers and ``Refused`` are read by all versions for ever. ``tests/golden`` has bytes of old versions, which must be read.
* Decoding returns a value or raises ``MalformedFrame``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from thence.core.epochs.epoch import Claim, Epoch
from thence.core.epochs.progress import Progress
from thence.core.epochs.statement import Statement
from thence.core.member.codec import FORMAT_VERSION
from thence.core.reconfig.flush import Inventory
from thence.core.reconfig.protocol import Standing
from thence.core.wire.messages import MAX_DESTINATIONS, UNREADABLE, Envelope
from thence.errors import MalformedFrame

PROTOCOL: Final = 1
"""The newest version of everything in this file, and of the packets of the core, that we speak."""

OLDEST_PROTOCOL: Final = 1
"""The oldest that we speak with those who know no newer one: a fabric is upgraded one server after the other."""

MAX_NUMBER: Final = 2**62
"""The highest number or position of a message: nobody comes that far by counting."""

PACKET: Final = 1
CONTROL: Final = 2
CONTROL_KIND: Final = bytes([CONTROL])
PACKET_KIND: Final = bytes([PACKET, FORMAT_VERSION])
"""How a packet begins; it is never longer than the core reads, since a channel sends ``PACKET_BYTES`` or one frame at a time."""

MAX_SHORT_BYTES: Final = 64 * 1024

MAX_NEWS_BYTES: Final = 48 * 1024
"""How long the text of a topology may be that a server is told when it is refused."""

"""The longest frame from a client that only holds names and numbers: all but those that ``long_kind`` returns."""

PROGRAM_BYTES: Final = 8
"""How many random bytes the id of a program has."""

MAX_RECIPIENTS: Final = MAX_DESTINATIONS
"""How many names messages can be for. A name of 3 bytes takes 80 once it is read, so this is looked at before."""

MAX_RECIPIENTS_BYTES: Final = 1024 * 1024
"""How many characters those names can have together: one frame could name 16 MiB of them, and count as one short message."""


WINDOW_MESSAGES: Final = 16_384
"""How many messages beyond those that are done the other side may send."""


MAX_UNACCEPTED: Final = 65_536


MAX_UNACCEPTED_BYTES: Final = 64 * 1024 * 1024


class ControlFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame that is no packet. Each kind is a class with a tag."""


class ServerHello(ControlFrame, frozen=True, array_like=True, tag=1):
    """Who calls, whom, and what it believes the fabric to be."""

    protocol: int
    fabric: str
    fingerprint: str
    server: str
    called: str
    store_id: str
    """Which store it runs on: with another one it is not the server that we knew."""
    version: int = 1
    """The version of its topology."""
    progress: dict[str, Progress] = {}
    """How far it is with whom it calls."""
    oldest: int = 1
    """The oldest protocol that it speaks; ``protocol`` is the newest."""
    claim: Claim | None = None
    """In which epoch it is with whom it calls (``core.epochs.handshake``); None: its version knows no epochs."""
    restored: bool = False
    """Whether its store was restored from a copy."""
    shown: Statement | None = None
    """The last statement that whom it calls has made to it (``core.epochs.statement``)."""


class ServerWelcome(ControlFrame, frozen=True, array_like=True, tag=2):
    """The answer to ``ServerHello``."""

    server: str
    store_id: str
    progress: dict[str, Progress] = {}
    protocol: int = 1
    """The one that is spoken."""
    claim: Claim | None = None
    """In which epoch it is with the caller, and which it offers; None: its version knows no epochs."""
    restored: bool = False
    """Whether its store was restored from a copy."""
    shown: Statement | None = None
    """The last statement that the caller has made to it (``core.epochs.statement``)."""
    stated: Statement | None = None
    """How far it is with the caller, in the epoch that it offers."""


class ServerAgreed(ControlFrame, frozen=True, array_like=True, tag=5):
    """The caller has the offered epoch on disk. Packets follow; a caller that made no claim does not say this."""

    epoch: Epoch
    stated: Statement | None = None
    """How far the caller is with whom it called."""


class Stated(ControlFrame, frozen=True, array_like=True, tag=6):
    """How far a server is with its peer by now. It goes to those only that have stated the same when they met."""

    stated: Statement


class Refused(ControlFrame, frozen=True, array_like=True, tag=3):
    """The other side does not go on, and says why."""

    reason: str
    later: bool = False
    """Whether it may go on later."""
    version: int = 0
    """The version of the server's topology, if it is another one."""
    fingerprint: str = ""
    """The fingerprint of that topology."""
    gone: int = 0
    """Above 0: whoever called was declared lost, with this version."""
    cause: str = ""
    """To a client: ``fenced``, another program has its name; ``lost``, the server has lost what it had of it."""
    accepted: int = -1
    """To a client that is fenced: the number of its last message that was accepted; below 0: that is not known any more."""
    behind: bool = False
    """Whether whoever called runs on an old copy of its store, beside another run of it that has its place."""
    shown: Statement | None = None
    """The last statement of whoever called, which proves ``behind``."""
    text: str = ""
    """To a server with an older topology: the one in force, unless it is too long (``MAX_NEWS_BYTES``)."""


class Ping(ControlFrame, frozen=True, array_like=True, tag=4):
    """Nothing else was to be said for a while."""


class ClientHello(ControlFrame, frozen=True, array_like=True, tag=10):
    """Who wants to send and listen. Without a name: only questions follow."""

    protocol: int
    name: str
    temporary: bool = False
    """Whether the name is given up when the client stays away."""
    entry: str = ""
    """Which entry of the access file it has a token of (``net.security.tokens``), if any."""
    nonce: bytes = b""
    """A number that it uses once."""
    oldest: int = 1
    """The oldest protocol that it speaks; ``protocol`` is the newest."""
    bound: bool = False
    """Whether its proof will cover the certificate that it saw (``net.security.tokens``)."""
    claim: Claim | None = None
    """The epoch that it had at its last welcome, or none: it begins. None at all: it knows no epochs
    (``node.directory.homes``)."""
    progress: Progress | None = None
    """How far it is with the server, if it goes on."""
    mailbox_id: int = 0
    """Its mailbox, if it goes on."""
    program: str = ""
    """Which program it is, by a random id: a call of it that arrives late must not take its name from itself."""


class Challenge(ControlFrame, frozen=True, array_like=True, tag=28):
    """The server wants to see the token of a client proved."""

    server: str
    fabric: str
    nonce: bytes
    """A number that it uses once."""
    bound: bool = False
    """Whether the proof must cover the certificate that the server shows."""
    signed: bool = False
    """Whether a signature is wanted, too."""


class Proof(ControlFrame, frozen=True, array_like=True, tag=29):
    """The answer to ``Challenge``."""

    proof: bytes
    ticket: bytes = b""
    """Proves that the client has the token or the verifier, where a signature is wanted. It costs little: it is checked first."""
    signature: bytes = b""
    """Proves that the client has the token."""


class ClientWelcome(ControlFrame, frozen=True, array_like=True, tag=11):
    """The answer to ``ClientHello``."""

    server: str
    fabric: str
    number: int
    """The number of the last message that came from this client: a new program goes on behind it."""
    accepted: int
    """The number of the last message that was accepted: a program that called before sends again what lies behind it."""
    position: int
    """The position up to which this client has acknowledged."""
    mailbox: int = 0
    """Which mailbox the client has; another one than before means that it was forgotten meanwhile."""
    proof: bytes = b""
    """To a client with a token: that the server knows it."""
    epoch: Epoch | None = None
    """The epoch of the client from here on."""
    mailbox_id: int = 0
    """The id of its mailbox, to be shown when it calls again."""
    answers: bool = False
    """Whether the server says when an ``Acknowledge`` is on disk, if it is asked to."""


class Publish(ControlFrame, frozen=True, array_like=True, tag=12):
    """Messages ``first`` to ``first + count - 1`` of this client, for the same recipients."""

    first: int
    count: int
    to: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_RECIPIENTS)] | None
    """Names of clients; None: everyone, unless there is a topic."""
    topic: str | None
    messages: bytes
    """A msgpack list of ``BatchItem``; only clients look into it."""
    hurry: bool = True
    """Whether somebody waits until they are accepted. If not, that may be told a little later, with something else."""


class Accepted(ControlFrame, frozen=True, array_like=True, tag=13):
    """The server answers for every message up to this number."""

    upto: int
    stored: int = 0
    """Up to which number it has noted that. Messages that nobody wants leave no trace."""


class Undeliverable(ControlFrame, frozen=True, array_like=True, tag=14):
    """These messages were not accepted, and never will be."""

    first: int
    count: int
    reason: str
    forbidden: bool = False
    """Whether the access file is why."""


class Deliver(ControlFrame, frozen=True, array_like=True, tag=15):
    """Messages for this client: the first of them has ``position``; of the list, the first ``skip`` were acknowledged before."""

    position: int
    skip: int
    sender: str
    topic: str | None
    messages: bytes
    everyone: bool = False
    """Whether they went to everyone."""
    withheld: str = ""
    """Why the client does not get them, if so: it may not follow the topic any more. Then only the head of the list is there, by
    which those of version 0.1 leave them out as unreadable."""


class ReadDeliver(Deliver, frozen=True, array_like=True, tag=15):
    """The same as it was read: the messages are a part of the frame, and must be read before the next one comes."""

    messages: memoryview  # type: ignore[assignment]


class Acknowledge(ControlFrame, frozen=True, array_like=True, tag=16):
    """The client has done with every message up to ``upto`` and takes more up to position ``limit``.

    From a server, to a client that wanted an answer: that is on disk.
    """

    upto: int
    limit: int
    answer: bool = False
    """Whether the client wants to be told when it is on disk (``ClientWelcome.answers``)."""


class Subscribe(ControlFrame, frozen=True, array_like=True, tag=17):
    """The client wants what is published on a topic, or no longer."""

    topic: str
    wanted: bool


class Subscribed(ControlFrame, frozen=True, array_like=True, tag=18):
    """From here on ``Subscribe`` holds at this server; elsewhere it holds for all that follows causally."""

    topic: str
    wanted: bool


class Find(ControlFrame, frozen=True, array_like=True, tag=23):
    """The client wants to know when there is a client of this name, as far as its server has heard."""

    name: str


class NameFound(ControlFrame, frozen=True, array_like=True, tag=24):
    """There is."""

    name: str


class StableQuestion(ControlFrame, frozen=True, array_like=True, tag=25):
    """The client wants to know when all recipients' servers have its messages up to this number, on disk."""

    upto: int


class Stable(ControlFrame, frozen=True, array_like=True, tag=26):
    """They have; or why nobody finds out."""

    upto: int
    reason: str = ""


class SafetyWanted(ControlFrame, frozen=True, array_like=True, tag=32):
    """The client wants to be told from now on which of its messages are safe."""


class Safe(ControlFrame, frozen=True, array_like=True, tag=33):
    """All messages for this client up to a position are safe; or why nobody finds out."""

    upto: int
    reason: str = ""


class Denied(ControlFrame, frozen=True, array_like=True, tag=27):
    """The client does not get what it asked for: to follow a topic, to look for a name, or to know something."""

    asked: Literal["topic", "name", "question"]
    about: str
    """The topic or the name."""
    reason: str
    forbidden: bool = True
    """Whether the access file is why; otherwise it cannot be done here any more."""


class StatusQuestion(ControlFrame, frozen=True, array_like=True, tag=20):
    """How is the server?"""


class StatusAnswer(ControlFrame, frozen=True, array_like=True, tag=21):
    """The status as JSON."""

    status: bytes


class Leave(ControlFrame, frozen=True, array_like=True, tag=22):
    """The client gives up its name, its messages and its topics."""


class ViewRequest(ControlFrame, frozen=True, array_like=True, tag=40):
    """Somebody leads a change of the fabric (``core.reconfig.coordinator``), and asks the server where it stands, or for its next
    step."""

    action: Literal["ask", "hold", "prepare", "report", "give", "flush", "bar", "switch", "resume", "follow"]
    attempt: int = 0
    """Which attempt it is about; with ``ask``, the one that the asker leads, if it does."""
    text: str = ""
    """Of ``hold``: the topology to follow; of ``follow``: the one that others have gone on to."""
    dead: bool = False
    """Of ``resume``: whether the attempt is known to be dead."""
    whole: bool = False
    """Whether the answer is to hold topologies."""
    lost: tuple[str, ...] = ()
    """Of ``hold``, ``bar`` and ``switch``: servers that are gone for good."""
    names: tuple[tuple[str, int], ...] = ()
    """Of ``give``: messages of which copies are wanted."""
    list_id: str = ""
    at: int = 0
    last: bool = False
    envelopes: tuple[Envelope, ...] = ()
    """Of ``flush``: a part of what the server lacks (``core.reconfig.protocol``)."""
    limited: bool = False
    """Of ``hold``: whether only those hold whom the change concerns."""
    absent: tuple[str, ...] = ()
    """Of ``hold``: who has no part in the attempt."""
    peers: tuple[str, ...] = ()
    """Of ``follow``: who have gone on."""


class ViewAnswer(ControlFrame, frozen=True, array_like=True, tag=41):
    """Where the server stands, when that is durable."""

    server: str
    standing: Standing
    refused: str = ""
    """Why it has not done what was asked for."""
    text: str = ""
    previous: str = ""
    """The topology in force and the one before it, if asked for."""
    paused_ms: float = 0.0
    """How long submissions waited at the last change, or wait by now."""
    report: Inventory | None = None
    """What the server has to compare with others, if asked for."""
    envelopes: tuple[Envelope, ...] = ()
    """Copies that were asked for: the first of them, as many as fit into an answer."""


class NumberedQuestion(ControlFrame, frozen=True, array_like=True):
    """Something is to be known of a server, or to be done there (``net.questions``)."""

    number: int
    question: bytes


class NumberedAnswer(ControlFrame, frozen=True, array_like=True):
    """The answer to the question with this number, as JSON; or why there is none."""

    number: int
    answer: bytes
    error: str = ""
    forbidden: bool = False
    """Whether the access file is why there is none."""


class AgentQuestion(NumberedQuestion, frozen=True, array_like=True, tag=30):
    """A question about the agents of a server (``agents.admin``)."""


class AgentAnswer(NumberedAnswer, frozen=True, array_like=True, tag=31):
    """The answer to an ``AgentQuestion``."""


class OperatorQuestion(NumberedQuestion, frozen=True, array_like=True, tag=42):
    """A question about the clients of a server (``server.admin``)."""


class OperatorAnswer(NumberedAnswer, frozen=True, array_like=True, tag=43):
    """The answer to an ``OperatorQuestion``."""


class BatchItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of a client, as clients see it."""

    body: bytes
    coded: bool = False
    """Whether the body is msgpack of a value, not bytes of the application's own."""
    headers: dict[str, str] | None = None
    request: int = 0
    """Above 0: a reply is wanted, with this id."""
    reply: int = 0
    """Above 0: this is the reply to the request with this id."""


def _kinds_of(base: type[ControlFrame]) -> Iterator[type[ControlFrame]]:
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag is None:
            yield from _kinds_of(kind)
        else:
            yield kind


KINDS: Final = tuple(_kinds_of(ControlFrame))
"""All kinds of frames that are no packets."""

_Readable: Any = functools.reduce(operator.or_, [ReadDeliver if kind is Deliver else kind for kind in KINDS])
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Readable)
_decode_said: Any = _decoder.decode


class _List(msgspec.Struct, array_like=True, gc=False):
    """A list of anything: a struct without fields takes every item for one that a later version has added, and skips it."""


_skip: Callable[[bytes], _List] = msgspec.msgpack.Decoder(_List).decode
_messages_decoder = msgspec.msgpack.Decoder(list[BatchItem])


def agreed(hello: ServerHello | ClientHello) -> int:
    """Return the newest protocol that both sides speak; 0: there is none."""
    newest = min(hello.protocol, PROTOCOL)
    return newest if newest >= max(hello.oldest, OLDEST_PROTOCOL) else 0


_LONG: Final[dict[int, type[ControlFrame]]] = {12: Publish, 30: AgentQuestion, 40: ViewRequest}
"""By their tags: what of all that a client says may be long."""


def long_kind(frame: memoryview) -> type[ControlFrame] | None:
    """Return what a client says in a frame, by its first bytes alone, if that may be long."""
    return _LONG.get(frame[2]) if len(frame) > 2 and frame[0] == CONTROL and 0x90 <= frame[1] <= 0x9F else None


def understand(frame: memoryview, sender: str) -> ControlFrame:
    """Return what a frame that is no packet says."""
    if frame[0] != CONTROL:
        raise MalformedFrame(f"a frame of kind {frame[0]} from {sender}; there is no such kind")
    try:
        return _decode_said(frame[1:])  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise MalformedFrame(f"a frame from {sender} that cannot be read: {error}") from None


write_messages: Callable[[list[BatchItem]], bytes] = _encoder.encode
"""Returns messages as they travel."""


def claimed_messages(written: bytes) -> int:
    """Return how many messages there are, by the head of the list alone: it costs the same however many. -1: this is no list."""
    kind = written[0] if written else 0
    if 0x90 <= kind <= 0x9F:
        return kind & 0x0F
    size = {0xDC: 2, 0xDD: 4}.get(kind)
    return -1 if size is None or len(written) <= size else int.from_bytes(written[1 : 1 + size])


def count_messages(written: bytes) -> int:
    """Return how many messages are really there; -1: this is no list, or it does not hold what it claims.

    The items are stepped over, and not made into anything: 20 ns for each, 80 ns for a batch of one. That is a third of what
    reading them costs, and a batch that only claims its messages costs its sender nothing.
    """
    try:
        _skip(written)
    except UNREADABLE:
        return -1
    return claimed_messages(written)


def write_no_messages(count: int) -> bytes:
    """Return the head of a list of so many messages, and none of them."""
    return b"\xdd" + count.to_bytes(4)


def read_messages(written: bytes, sender: str) -> list[BatchItem]:
    """Return messages as somebody wrote them."""
    try:
        return _messages_decoder.decode(written)
    except UNREADABLE as error:
        raise MalformedFrame(f"messages from {sender!r} that cannot be read: {error}") from None


def encode_value(value: Any) -> bytes:
    """Return a typed body."""
    return _encoder.encode(value)
