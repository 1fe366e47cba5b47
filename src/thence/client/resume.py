"""How a program shows its server that it is the one that was there before.

Rules:

* The epoch of a program (``core.epochs.epoch``) is in memory only: whoever starts again begins anew, and takes the name over.
* A server that knows no epochs gives none. Then only numbers are compared.
* Whoever is refused because another program has its name, or because the server has lost something, is told so by an error of its
  own, which says how many of its messages were not accepted. It does not call again.
"""

from __future__ import annotations

import secrets

import msgspec

from thence.core.epochs.epoch import NEVER_MET
from thence.core.epochs.progress import Progress
from thence.errors import Fenced, Refusal, StateLost
from thence.net.protocol import MAX_NUMBER, PROGRAM_BYTES, ClientHello, ClientWelcome, Refused
from thence.words import counted


class Resumption:
    """Shows a server that this program is the one that was there before."""

    def __init__(self) -> None:
        """Start without an epoch."""
        self._program = secrets.token_hex(PROGRAM_BYTES)
        self.welcome: ClientWelcome | None = None
        """The last one."""
        self.stored = 0
        """Up to which number the server has said to have our messages on disk."""

    def introduce(self, hello: ClientHello, number: int, received: int) -> ClientHello:
        """Add to a hello what shows who we are: up to which number we have sent, and up to which position received."""
        before = self.welcome
        hello = msgspec.structs.replace(hello, program=self._program)
        if before is None:
            return msgspec.structs.replace(hello, claim=NEVER_MET)
        if before.epoch is None:
            return hello
        progress = Progress(max(number, before.number), self.stored, received, received)
        return msgspec.structs.replace(
            hello, claim=NEVER_MET.agree(before.epoch), progress=progress, mailbox_id=before.mailbox_id
        )

    def welcomed(self, welcome: ClientWelcome) -> None:
        """The server has let us in."""
        self.welcome = welcome
        self.stored = max(self.stored, welcome.accepted)

    def objection(self, welcome: ClientWelcome, name: str, number: int, received: int) -> str:
        """Say why not to go on with a server, if so."""
        counts = (welcome.number, welcome.accepted, welcome.position)
        if not all(0 <= count <= MAX_NUMBER for count in counts):
            return f"{welcome.server!r} says that {name!r} has sent, and it has accepted and delivered, {counts}, which cannot be"
        before = self.welcome
        if before is None:
            return ""
        if before.epoch is not None and welcome.epoch is None:
            return f"{welcome.server!r} knew epochs and knows none now: it runs on an old copy of its store, or is another one"
        if welcome.mailbox != before.mailbox and welcome.epoch is None:
            lost = f"{name!r} was away for too long and was forgotten, with what waited for it"
            return f"{lost}, or the server was restored from a copy of its store"
        if welcome.position > received or welcome.number > max(number, before.number):
            return f"another program has read or sent messages as {name!r} while we were away"
        return ""


def failure(refused: Refused, url: str, unanswered: int) -> Refusal:
    """Return the error that says why a server refuses us for good; so many messages are not known to be accepted."""
    reason = f"{url}: {refused.reason}"
    if refused.cause == "fenced":
        return Fenced(reason + _say(unanswered, known=refused.accepted >= 0))
    if refused.cause == "lost":
        return StateLost(reason + _say(unanswered, known=False))
    return Refusal(reason)


def _say(unanswered: int, *, known: bool) -> str:
    messages = counted(unanswered, "message")
    if not unanswered:
        return ""
    if known:
        return f"; {messages} of this program {'was' if unanswered == 1 else 'were'} not accepted, and never will be"
    return f"; of {messages} of this program it is not known whether {'it was' if unanswered == 1 else 'they were'} accepted"
