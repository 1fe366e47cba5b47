"""Where connections come in: everybody is a stranger until it has said who it is, and proved it where that is asked for.

Rules:

* A stranger gets ``HELLO_TIMEOUT_S`` for TLS, as long again to introduce itself, and ``MAX_HELLO_BYTES`` for a frame.
* There are at most ``MAX_STRANGERS`` at a time, and ``MAX_STRANGERS_PER_PLACE`` from one place. Then the one that has been there
  longest, of the place with the most, is shown out for the next: who introduces itself at once gets in, however many are silent.
* What strangers can make a server keep is bounded by the product: ``MAX_STRANGER_BYTES``.
* To agree on TLS takes a millisecond or two. It is begun ``TLS_PER_S`` times a second with those at one place, and
  ``TLS_BURST`` times at once; others of that place wait, for ``HELLO_TIMEOUT_S`` at most.
* There are at most ``MAX_CONNECTIONS``, and fewer where there is no memory for them or the system allows fewer open
  files. Then, too, a stranger is shown out for the next, if there is one: strangers alone never fill a server.
* One part in ``SPARE_SHARE`` of these is for strangers only. When all others are taken, a client that has introduced itself gets
  the newest connection of the entry in the access file, or of the place without a token, that has most (``node.shares``). If its
  own has as many, it is refused, and may come again: no entry takes all connections. Servers make nobody wait.
* Whoever is refused stays a stranger until its connection has ended.
* Servers and clients come through the same listener; the first frame says which they are.
* Where there is an access file, a client proves its token (``net.security.tokens``) before anything else that it says is read.
  Over TLS the proof covers the certificate that the server showed on this connection.
* A client that begins under a name shows first that it is there, by the same two frames, also where it needs no token: its call
  may have been on its way for long, and its program may be dead. Clients of version 0.1 do not answer, and are not asked.
* A client pings when it has said nothing for a while. Where the way is long, that comes before its answer: ``MAX_EARLY_PINGS``
  are let pass.
* Its answer may have been on its way for long, too. If another program has got the name meanwhile, the client is to call again.
* Every refusal is told to the other side, as far as it can be, and to the log, with the address and the name claimed.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from thence.core.topology.addresses import parse_address
from thence.errors import ConfigError, MalformedFrame
from thence.net.control import hang_up, refuse, tell
from thence.net.framing import HEADER, MAX_HELLO_BYTES, Connection, address_text
from thence.net.protocol import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Challenge,
    ClientHello,
    Ping,
    Proof,
    Refused,
    ServerHello,
    agreed,
    understand,
)
from thence.net.security.access import Guest
from thence.net.security.credentials import Security
from thence.net.security.exposure import is_loopback
from thence.net.security.tokens import NONCE_BYTES, new_nonce
from thence.node.directory.homes import begins
from thence.node.shares import ConnectionShares
from thence.runtime.event_loop import ignore
from thence.runtime.offenders import ArrivalPace, OffenderLog, place_of

HELLO_TIMEOUT_S: Final = 5.0
MAX_EARLY_PINGS: Final = 8
"""Clients ping every two seconds, those of other versions perhaps more often."""
MAX_STRANGERS: Final = 256
MAX_STRANGERS_PER_PLACE: Final = 128
"""From one address, or one network of the newer kind of addresses that a single subscriber gets."""
TLS_BYTES: Final = 320 * 1024
"""What Python and OpenSSL keep for a connection with TLS, about: a buffer of 256 KiB, and their states."""
MAX_STRANGER_BYTES: Final = MAX_STRANGERS * (MAX_HELLO_BYTES + HEADER.size + TLS_BYTES)
"""The most that all strangers together can make a server keep; without TLS it is a sixth of that."""
TLS_PER_S: Final = 50
TLS_BURST: Final = 50
MAX_CONNECTIONS: Final = 10_000
SPARE_SHARE: Final = 16
"""One part in so many of all connections is for those who have not introduced themselves yet."""
RESERVED_FILES: Final = 128
"""How many open files are left for the store, the trace and everything else."""
BACKLOG: Final = 256
"""How many connections the system keeps before the listener."""
ACCEPT_PAUSE_S: Final = 0.2
"""How long the listener stays closed when the system has no room for another connection."""


class Listener:
    """Listens on one address, and hands over whoever has introduced itself."""

    def __init__(
        self,
        server: tuple[str, str],
        security: Security,
        on_server: Callable[[Connection, ServerHello], bool],
        on_client: Callable[[Connection, ClientHello, Guest | None], bool],
    ) -> None:
        """The listener of ``server``, which is its name and that of its fabric.

        The last two are called with a connection and its first frame. They take it over, or refuse it; they return which.
        """
        self._server = server
        self._security = security
        self._on_server = on_server
        self._on_client = on_client
        self.holder_of: Callable[[str], object] = ignore
        """Returns who has a name, in any form: another one means that another program has got it."""
        self.strangers: ConnectionShares[Connection] = ConnectionShares()
        """Those who have not introduced themselves, by where they are."""
        self._timers: dict[Connection, asyncio.TimerHandle] = {}
        """What ends each of ``strangers`` if it says nothing."""
        self._clients: ConnectionShares[Connection] = ConnectionShares()
        """Those of clients, by their entries in the access file, or by where they are."""
        self.connections: set[Connection] = set()
        self.complaints = OffenderLog()
        self._listening: list[socket.socket] = []
        self._coming: dict[Connection, asyncio.Task[None]] = {}
        """Those with whom TLS is being agreed on."""
        self._pace = ArrivalPace(TLS_PER_S, TLS_BURST, HELLO_TIMEOUT_S)
        self._closed = False
        self._most = MAX_CONNECTIONS
        self.limit = MAX_CONNECTIONS
        """How many connections there may be, where memory allows no more."""
        self.turned_away = 0

    async def open(self, address: str, *, peers: bool) -> str:
        """Listen; return the address with the port that was really taken. ``peers``: whether other servers may come."""
        host, port = parse_address(address)
        self._security.check_listening(host, peers=peers)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files - RESERVED_FILES)
        self._most = min(self._most, self.limit)
        if self._most < 1:
            raise ConfigError(f"the system allows {files} open files, and RESERVED_FILES ({RESERVED_FILES}) are for other things")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, place in dict.fromkeys(found):
                self._listening.append(socket.create_server(place[:2], family=family, backlog=BACKLOG))
        except OSError as error:
            self._stop_listening()
            raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
        for listening in self._listening:
            listening.setblocking(False)
            self._listen(listening)
        return f"{host}:{self._listening[0].getsockname()[1]}"

    async def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
        self._stop_listening()
        await asyncio.sleep(0)  # Whoever has just come has its turn.
        coming = list(self._coming.values())
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        for connection in list(self.strangers):
            connection.close()

    def _stop_listening(self) -> None:
        for listening in self._listening:
            listening.close()
        self._listening = []

    # Coming in.

    def _accept(self, listening: socket.socket) -> None:
        """Somebody stands at the listener. One at a time: what was begun for the one before has had its turn."""
        try:
            came, peer = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self.complaints.say("the listener", f"nobody can come in for {ACCEPT_PAUSE_S:g} s: {error.strerror}")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE_S, self._listen, listening)
            return  # Otherwise whoever stood there has gone.
        came.setblocking(False)
        self._came(came, address_text(peer))

    def _listen(self, listening: socket.socket) -> None:
        if not self._closed:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _came(self, came: socket.socket, address: str) -> None:
        allowed = _allowed(self._most)
        full = len(self.connections) >= self._most
        if full and not self.strangers:
            self.turned_away += 1
            self.complaints.say(address, f"turned away: there are {len(self.connections)} connections; {allowed}")
            came.close()
            return
        place = place_of(address.rpartition(":")[0])
        if self.strangers.held_by(place) >= MAX_STRANGERS_PER_PLACE:
            self._show_out(place, f"there are MAX_STRANGERS_PER_PLACE ({MAX_STRANGERS_PER_PLACE}) like it")
        elif full or len(self.strangers) >= MAX_STRANGERS:
            why = allowed if full else f"there are MAX_STRANGERS ({MAX_STRANGERS}) like it"
            self._show_out(self.strangers.largest(), why)
        connection = Connection()
        connection.address = address
        connection.on_made, connection.on_frame = self._made, self._introduced
        connection.on_lost, connection.on_end = self._lost, self._ended
        connection.complain = partial(self.complaints.say, address)
        self.strangers.add(connection, place)
        self.connections.add(connection)
        self._coming[connection] = asyncio.get_running_loop().create_task(self._let_in(connection, came))

    def _show_out(self, place: str, why: str) -> None:
        """Let the stranger from a place that has been there for longest make room for another."""
        connection = self.strangers.oldest_of(place)
        self.turned_away += 1
        connection.complain(f"shown out: it has not introduced itself, and {why}")
        coming = self._coming.get(connection)
        if coming is not None:
            coming.cancel()
        self._ended(connection)
        connection.fail(MalformedFrame("it was shown out"))

    async def _let_in(self, connection: Connection, came: socket.socket) -> None:
        tls, connection.binding = self._security.incoming, self._security.binding
        try:
            # asyncio does so only where it made the listening socket: else small packets wait 40 ms for an ack of the one before.
            came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                await self._wait_for_turn(connection, came)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, came, ssl=tls, ssl_handshake_timeout=None if tls is None else HELLO_TIMEOUT_S
            )
        except OSError as error:
            connection.complain(f"no TLS with a stranger: {_why_no_tls(error)}")
            self._ended(connection)
        except asyncio.CancelledError:
            came.close()
            self._ended(connection)
            raise
        finally:
            del self._coming[connection]

    async def _wait_for_turn(self, connection: Connection, came: socket.socket) -> None:
        """Wait until TLS may be agreed on with one more from this place; an ``OSError`` if that would take too long."""
        delay = self._pace.delay(self.strangers.holder(connection))
        if delay is None:
            self.turned_away += 1
            came.close()
            raise ConnectionAbortedError(f"turned away: more come from there than TLS_PER_S ({TLS_PER_S}) allows")
        if delay:
            connection.complain(f"waits for its turn: more come from there than TLS_PER_S ({TLS_PER_S}) allows")
            await asyncio.sleep(delay)

    def _made(self, connection: Connection) -> None:
        if self._closed:
            connection.close()  # It stood before the listener when that was closed.
            return
        self._timers[connection] = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self._too_slow, connection)

    def _too_slow(self, connection: Connection) -> None:
        connection.fail(MalformedFrame(f"it did not introduce itself within {HELLO_TIMEOUT_S:g} s"))

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        if error is not None and connection in self._timers:
            connection.complain(f"a stranger: {error}")

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._clients.drop(connection)
        self._known(connection)

    def _known(self, connection: Connection) -> None:
        """It is a stranger no more: it was taken in, or it has gone."""
        self._at_ease(connection)
        self.strangers.drop(connection)

    def _at_ease(self, connection: Connection) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    # Who it is.

    def _introduced(self, connection: Connection, frame: memoryview) -> None:
        hello = understand(frame, "it")
        if not isinstance(hello, ServerHello | ClientHello):
            raise MalformedFrame(f"it begins with {type(hello).__name__}")
        if not agreed(hello):
            offered = f"protocols {hello.oldest} to {hello.protocol} were offered"
            refuse(connection, f"{offered}; this server speaks {OLDEST_PROTOCOL} to {PROTOCOL}")
            self._at_ease(connection)
        elif isinstance(hello, ServerHello):
            self._make_room("")
            self._hand_over(connection, self._on_server(connection, hello))
        elif self._security.access is not None:
            self._challenge(connection, hello)
        elif hello.name and begins(hello) and not hello.entry and len(hello.nonce) == NONCE_BYTES:
            self._ask(connection, hello, Challenge(*self._server, new_nonce()), self._is_there)
        else:
            self._introduced_as(connection, hello, None)

    def _introduced_as(self, connection: Connection, hello: ClientHello, guest: Guest | None) -> None:
        """It is known which client it is: hand it over if there is a connection left for it."""
        holder = self.strangers.holder(connection) if guest is None else f"the token of {guest.rights.entry!r}"
        if not self._make_room(holder):
            self.turned_away += 1
            _let_go(connection, holder, self._clients.held_by(holder), _without_spare(self._most))
            self._at_ease(connection)
            return
        self._hand_over(connection, self._on_client(connection, hello, guest))
        if connection not in self.strangers and connection in self.connections:
            self._clients.add(connection, holder)

    def _make_room(self, holder: str) -> bool:
        """Return whether somebody may have one connection more; whoever has most gives one up for it if need be."""
        most = _without_spare(self._most)
        if len(self.connections) - len(self.strangers) < most:
            return True
        connection = self._clients.gives_way_to(holder)
        if connection is None:
            return False
        self.turned_away += 1
        largest = self._clients.holder(connection)
        _let_go(connection, largest, self._clients.held_by(largest), most)
        self._clients.drop(connection)
        self.strangers.add(connection, place_of(connection.address.rpartition(":")[0]))  # Until it has gone.
        return True

    def _hand_over(self, connection: Connection, accepted: bool) -> None:
        if accepted:
            self._known(connection)
        else:
            self._at_ease(connection)  # Until it has gone it stays one of the strangers.

    def _challenge(self, connection: Connection, hello: ClientHello) -> None:
        """Ask a client for the proof that it has its token."""
        host = connection.address.rpartition(":")[0]
        reason = ""
        if self._security.incoming is None and not is_loopback(host):
            reason = "tokens go over TLS only, except on one machine"
        elif not hello.entry:
            reason = f"{self._server[0]} wants a token"
        elif len(hello.nonce) != NONCE_BYTES:
            reason = f"a nonce of {len(hello.nonce)} bytes; it must have {NONCE_BYTES}"
        elif hello.bound != bool(connection.binding):
            reason = _why_not_bound(self._server[0], hello)
        if reason:
            self._refuse_client(connection, hello, reason)
            return
        access = self._security.access
        signed = access is not None and access.wants_signature(hello.entry)
        self._ask(connection, hello, Challenge(*self._server, new_nonce(), bool(connection.binding), signed), self._proved)

    def _ask(
        self,
        connection: Connection,
        hello: ClientHello,
        challenge: Challenge,
        then: Callable[[Connection, ClientHello, Challenge, Proof], None],
    ) -> None:
        holder = self.holder_of(hello.name)
        pings = 0

        def answered(connection: Connection, frame: memoryview) -> None:
            nonlocal pings
            said = understand(frame, "it")
            if isinstance(said, Ping) and pings < MAX_EARLY_PINGS:
                pings += 1  # It was on its way before the challenge got there.
                return
            if not isinstance(said, Proof):
                what = "prove its token" if hello.entry else "show that it is there"
                raise MalformedFrame(f"it says {type(said).__name__} where it must {what}")
            if begins(hello) and self.holder_of(hello.name) != holder:
                hang_up(connection, Refused(f"another program has come as {hello.name!r} meanwhile: call again", later=True))
                self._at_ease(connection)
            else:
                then(connection, hello, challenge, said)

        connection.on_frame = answered
        tell(connection, challenge)

    def _is_there(self, connection: Connection, hello: ClientHello, challenge: Challenge, said: Proof) -> None:
        if said.proof != challenge.nonce:
            raise MalformedFrame("it answers another challenge")
        self._introduced_as(connection, hello, None)

    def _proved(self, connection: Connection, hello: ClientHello, challenge: Challenge, said: Proof) -> None:
        access = self._security.access
        guest = None if access is None else access.admit(hello, challenge, said, connection.binding)
        if guest is None:
            other = ", or its proof was made for another certificate than that of this server" if connection.binding else ""
            if challenge.signed and not said.signature:
                other = ": it takes signatures, and clients of version 0.1 make none. Upgrade the client"
            self._refuse_client(connection, hello, f"the token of {hello.entry!r} is not right{other}")
            return
        reason = guest.rights.objection_to_name(hello.name)
        if reason:
            self._refuse_client(connection, hello, reason)
            return
        self._introduced_as(connection, hello, guest)

    def _refuse_client(self, connection: Connection, hello: ClientHello, reason: str) -> None:
        refuse(connection, reason, claims=f"client {hello.name!r} with the token of {hello.entry!r}")
        self._at_ease(connection)


def _without_spare(number: int) -> int:
    """Return how many of all connections there may be of those who have introduced themselves."""
    return number - number // SPARE_SHARE


def _let_go(connection: Connection, holder: str, held: int, most: int) -> None:
    """End a connection, for now, of somebody who has more of them than others; ``most``: how many there may be of all."""
    reason = f"{holder} has {held} connections, and others want some: {_allowed(most)} in all"
    refuse(connection, Refused(reason, later=True), claims=f"one more of {holder}")


def _allowed(number: int) -> str:
    return f"MAX_CONNECTIONS, --memory and the limit on open files allow {number}"


def _why_not_bound(server: str, hello: ClientHello) -> str:
    """Say what is wrong where one side binds the proof of a token to a certificate and the other does not."""
    if hello.bound:
        return f"this client came over TLS, and none reaches {server}: what ends it on the way must pass it on instead"
    return (
        f"this client binds no proof to a certificate, as clients of version 0.1 do not, and {server} takes no other over TLS. "
        "Upgrade the client"
    )


def _why_no_tls(error: OSError) -> str:
    """Return what went wrong, without where in OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).replace("_", " ").lower()
    return str(error) or type(error).__name__
