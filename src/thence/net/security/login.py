"""How a client introduces itself to a server, proves its token, and makes sure that this is the server it means.

Rules:

* Over TLS a proof covers the certificate that the client saw (``net.security.tokens``). A server that does not ask for that gets
  no proof: it could use it elsewhere.
* A client that was told which server is meant goes on with no other, and gives it no proof. One that was connected goes on with
  the same server of the same fabric.
* A client with a token goes on only with a server that proves to know it.
* One without says by a nonce that it answers a challenge all the same, and does so with the nonce of the server: that shows that
  it is there (``node.listener``). Servers of version 0.1 do not ask.
"""

from __future__ import annotations

from thence.errors import MalformedFrame, Refusal
from thence.net.framing import Connection
from thence.net.protocol import OLDEST_PROTOCOL, PROTOCOL, Challenge, ClientHello, ClientWelcome, Proof
from thence.net.security.tls import binding_of
from thence.net.security.tokens import NONCE_BYTES, TEMPORARY_MARK, new_nonce, parse_token


class Login:
    """One login of a client at a server, with a token or without."""

    def __init__(self, token: str | None, server: str = "") -> None:
        """Log in with this token, if there is one, at this server, if it is known."""
        self._token = None if token is None else parse_token(token)
        self._meant = (server, "")
        """Which server, of which fabric."""
        self._hello = ClientHello(PROTOCOL, "")
        self._challenge: Challenge | None = None

    @property
    def prefix(self) -> str:
        """How the name begins of a client that was given none."""
        return "client-" if self._token is None else self._token.entry + TEMPORARY_MARK

    def hello(self, connection: Connection, name: str, *, temporary: bool, secure: bool) -> ClientHello:
        """Return what to say first on a connection; ``secure``: it has TLS."""
        self._challenge = None
        entry = "" if self._token is None else self._token.entry
        channel = connection.get_extra_info("ssl_object")  # Nothing if the other side has hung up meanwhile.
        connection.binding = b"" if channel is None else binding_of(channel.getpeercert(binary_form=True))
        self._hello = ClientHello(PROTOCOL, name, temporary, entry, new_nonce(), OLDEST_PROTOCOL, secure)
        return self._hello

    def prove(self, connection: Connection, challenge: Challenge) -> Proof:
        """Return the proof that a server asks for; ``Refusal`` if it is not to get one."""
        if self._challenge is not None or len(challenge.nonce) != NONCE_BYTES:
            raise MalformedFrame(f"{connection.address} asks for a proof that it cannot ask for")
        reason = self._objection_to(challenge.server, challenge.fabric)
        if not reason and self._token is not None and self._hello.bound and not (challenge.bound and connection.binding):
            reason = (
                f"{challenge.server} does not bind logins to its certificate, as servers of version 0.1 do not. It could use "
                "this one elsewhere, so it does not get it: upgrade the server"
            )
        if reason:
            raise Refusal(reason)
        self._challenge = challenge
        if self._token is None:
            return Proof(challenge.nonce)
        if challenge.signed:
            return self._token.signed(self._hello, challenge, connection.binding)
        return Proof(self._token.prove(self._hello, challenge, connection.binding))

    def objection(self, connection: Connection, welcome: ClientWelcome) -> str:
        """Say why not to go on with a server that says welcome; if nothing is wrong, it is the one that is meant from now on."""
        if not self._is_proved(connection, welcome):
            return "this client has a token, and whoever answers there does not know it"
        reason = self._objection_to(welcome.server, welcome.fabric)
        if not reason:
            self._meant = (welcome.server, welcome.fabric)
        return reason

    def _is_proved(self, connection: Connection, welcome: ClientWelcome) -> bool:
        challenge = self._challenge
        if self._token is None:
            return True
        if challenge is None or (challenge.server, challenge.fabric) != (welcome.server, welcome.fabric):
            return False
        return self._token.is_answer(self._hello, challenge, welcome.proof, connection.binding)

    def _objection_to(self, server: str, fabric: str) -> str:
        meant, meant_fabric = self._meant
        if meant and server != meant:
            return f"this is server {server!r}, and {meant!r} is meant"
        if meant_fabric and fabric != meant_fabric:
            return f"this is server {server!r} of fabric {fabric!r}, and that of {meant_fabric!r} is meant"
        return ""
