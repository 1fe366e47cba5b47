"""What the command line expects of the answers of servers: what it shows is there, and of the right kind.

A server may be of another version, or mean ill. So an answer is looked at before anything of it is shown: one that cannot be
shown is told in one line, with the server and what is wrong. What an answer has beside that is left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec

from thence.cli.options import Authority, Token
from thence.client.client import Client
from thence.errors import MalformedFrame
from thence.runtime import event_loop

Time = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""In nanoseconds since 1970."""

T = TypeVar("T")


class Change(TypedDict):
    """How a change of the fabric is."""

    phase: str
    next_version: int
    next_fingerprint: str
    waiting_submissions: int
    led_seconds_ago: float | None


class StoreStatus(TypedDict):
    """How the store is."""

    durable: bool
    commits: int
    mean_commit_ms: float


class BacklogStatus(TypedDict):
    """What waits, and where."""

    mode: str
    box_letters: int
    box_bytes: int
    spilled_bytes: int
    max_spilled_bytes: int | None
    spilled_frame_bytes: int
    max_spilled_frame_bytes: int | None
    frames_stay_in_memory: str


class PoolStatus(TypedDict):
    """What is on its way."""

    bytes: int
    limit_bytes: int | None


class MemoryStatus(TypedDict, total=False):
    """What the server may take."""

    limit_bytes: int | None
    in_flight: dict[str, PoolStatus]


class PeerStatus(TypedDict):
    """How it is with a peer."""

    name: str
    connected: bool
    trouble: str
    unreadable: str
    since_seconds: float
    connections: int
    queued_frames: int
    queued_bytes: int
    spilled_frames: int
    frames_out: int
    bytes_out: int
    held_for_dead: bool


StatusClient = TypedDict(
    "StatusClient",
    {"name": str, "connected": bool, "from": str, "sent": int, "waiting_letters": int, "spilled_letters": int},
)


class AgentsStatus(TypedDict):
    """How it is with all agents."""

    count: int
    reactions: int
    dead_letters: int


class ClockStatus(TypedDict):
    """A clock of an ordering."""

    ordering: str
    state: Any


class UnsafeStatus(TypedDict):
    """What is not known to be safe."""

    letters: int
    sent: int


class _Later(TypedDict, total=False):
    """What servers of version 0.1 do not say."""

    memory: MemoryStatus
    clients_count: int
    unsafe: UnsafeStatus | None


class Status(_Later):
    """What ``thence status`` and ``thence top`` show."""

    server: str
    fabric: str
    version: int
    fingerprint: str
    address: str
    up_seconds: float
    change: Change
    stalled: str
    store: StoreStatus
    backlog: BacklogStatus
    neighbours: list[PeerStatus]
    clients: list[StatusClient]
    agents: AgentsStatus
    clocks: dict[str, ClockStatus]
    waiting: list[str]
    waiting_count: int
    oldest_wait_seconds: float
    held_deliveries: int
    letters_accepted: int
    letters_delivered: int
    messages_forwarded: int


ListedClient = TypedDict(
    "ListedClient",
    {
        "name": str,
        "connected": bool,
        "from": str,
        "temporary": bool,
        "waiting_messages": int,
        "waiting_bytes": int,
        "full": bool,
    },
)


class Clients(TypedDict):
    """What ``thence client list`` shows."""

    server: str
    clients: list[ListedClient]
    count: int
    stalled: str


class ShownClient(ListedClient):
    """What ``thence client show`` shows."""

    server: str
    in_files: int
    sent: int
    received: int
    done: int
    topics: list[str]
    topics_left_out: int
    stalled: str


class DroppedOf(TypedDict):
    """What ``thence client remove`` and ``purge`` show."""

    server: str
    name: str
    was_connected: bool
    dropped_messages: int
    dropped_bytes: int
    stalled: str


class ListedAgent(TypedDict):
    """What ``thence agent list`` shows of each."""

    name: str
    kind: str
    reacted: int
    waiting_letters: int
    state_bytes: int
    trouble: str


class DeadLetter(TypedDict):
    """What ``thence agent dead`` shows of each."""

    number: int
    agent: str
    sender: str
    attempts: int
    error: str
    at: Time


def ask(url: str, token: Token, authority: Authority, shape: object, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask a server, without being one of its clients; return its answer, if it has what is shown of it."""

    async def answer() -> T:
        async with Client(url, "", temporary=False, token=token, authority=authority) as client:
            return await question(client)

    return checked(event_loop.run(answer()), shape, url)


def checked(answer: T, shape: Any, url: str) -> T:
    """Return the answer of a server, if it has what is shown of it."""
    try:
        msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise MalformedFrame(
            f"{url} answers with what cannot be shown: {error}. It is of another version, or no server of thence"
        ) from None
    return answer
