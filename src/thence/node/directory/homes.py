"""Which program a mailbox belongs to: decided when a program calls, and kept across restarts of the server.

A client and its server number what they send to each other, as two servers do, and the numbers are valid within an epoch
(``core.epochs.epoch``). The program has its epoch in memory only; the server has it in the mailbox, on disk.

Rules:

* A program that *begins* shows no epoch. It takes the name over: the mailbox gets a new epoch, and those of earlier programs are
  *fenced*: nobody goes on with them. A program that knows no epochs counts as one that begins.
* A program that begins calls again until it is welcome, and calls that it has given up may arrive late. So it has a random id,
  with which the ids of its epochs begin, but for the first of a mailbox: it takes nothing from itself, and none that was fenced
  begins again.
* A program that *goes on* shows the epoch of its last welcome, and gets another one. If the mailbox does not have that epoch,
  another program has taken the name, or the server runs on an old copy of its store. It is refused for good, with the reason.
* The first thing that a program says on a connection shows that it has the epoch of its welcome (``heard``): then all earlier
  ones end. Until then a call that it had given up may arrive late and be given another epoch, so both are kept.
* The new epoch is durable before the program hears of it. Of each mailbox one such record is under way at a time: whoever calls
  meanwhile is asked to come again.
* A program that is fenced hears which of its messages were accepted, as long as the mailbox knows (``KEEP_FENCED``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from thence.core.epochs.epoch import MAX_EPOCH_ID_CHARACTERS, NEVER_MET, Epoch, EpochFit, Side, compare
from thence.core.epochs.progress import Progress
from thence.errors import MalformedFrame
from thence.net.protocol import PROGRAM_BYTES, ClientHello, Refused
from thence.node.directory.directory import Directory
from thence.storage.mailbox import HOME, Mailbox, MailboxMet
from thence.storage.rejections import KEEP_REJECTED, Rejected, runs

ID_BYTES: Final = 8
"""How long the random ids of epochs and mailboxes are."""

FENCED: Final = "fenced"
LOST: Final = "lost"

Write = Callable[[Sequence[MailboxMet], Callable[[], None]], None]


def new_mailbox() -> int:
    """Return an id that no mailbox has had."""
    return secrets.randbits(8 * ID_BYTES - 1) | 1


def begins(hello: ClientHello) -> bool:
    """Return whether a program takes a name over, and does not go on as it was."""
    return hello.claim is None or hello.claim.agreed.epoch == Epoch()


class Homes:
    """Decides which program a mailbox belongs to, when programs call."""

    def __init__(self, server: str, directory: Directory, write: Write) -> None:
        """Decide for the mailboxes of ``server``; ``write`` stores records and calls back when that is durable."""
        self._server = server
        self._directory = directory
        self._write = write
        self._joining: dict[str, None] = {}
        """Clients whose mailbox has an epoch that is not durable."""

    def started(self) -> None:
        """The server has started again, now or in what is being brought back."""
        for mailbox in self._directory.state.mailboxes.values():
            mailbox.started()

    def again(self, record: MailboxMet | Rejected) -> None:
        """Bring back what was stored of a mailbox."""
        if isinstance(record, Rejected):
            self._directory.mailboxes.reject(record)
            return
        mailbox = self._directory.state.mailboxes.get(record.client)
        if mailbox is not None and mailbox.since == record.since:
            mailbox.met(record)

    def objection(self, hello: ClientHello) -> Refused | None:
        """Say why a program cannot have its mailbox, if so."""
        if hello.name in self._joining:
            return Refused(f"another connection as {hello.name!r} is just being made", later=True)
        mailbox = self._directory.state.mailboxes.get(hello.name)
        if begins(hello):
            return self._objection_to_beginning(hello, mailbox)
        _check(hello)
        if mailbox is None or mailbox.id != hello.mailbox_id:
            return Refused(self._gone(hello, mailbox), cause=LOST)
        comparison = self._compare(hello, mailbox)
        if not comparison.reason and hello.progress is not None and mailbox.acknowledged > hello.progress.received:
            dropped = (
                f"messages up to number {mailbox.acknowledged} for {hello.name!r} were dropped by an operator while it was away"
            )
            return Refused(f"{dropped}, and it had got {hello.progress.received} of them. Start the program anew", cause=LOST)
        if not comparison.reason:
            return None
        here, there = mailbox.shown.agreed.epoch, _shown(hello)
        if there.id in mailbox.fenced or (comparison.behind == "peer" and here.number > there.number):
            return Refused(f"another program has the name {hello.name!r} since", cause=FENCED, accepted=_accepted(mailbox, there))
        return Refused(self._lost(hello, comparison), cause=LOST)

    def _objection_to_beginning(self, hello: ClientHello, mailbox: Mailbox | None) -> Refused | None:
        _check_program(hello)
        if mailbox is None or not hello.program or not any(epoch.startswith(hello.program) for epoch in mailbox.fenced):
            return None
        # Whoever begins has not been let in, so nothing of it was accepted.
        return Refused(f"another program has the name {hello.name!r} since", cause=FENCED, accepted=0)

    def holder(self, name: str) -> tuple[int, int]:
        """Return which mailbox has a name, and its newest epoch: another program that gets it makes another one."""
        mailbox = self._directory.state.mailboxes.get(name)
        return (0, 0) if mailbox is None else (mailbox.id, max(held.epoch.number for held in mailbox.shown.held))

    def takes_over(self, hello: ClientHello, there: str = "") -> bool:
        """Return whether a program takes the name from another one; ``there``: which one is connected."""
        mailbox = self._directory.state.mailboxes.get(hello.name)
        if not begins(hello) or mailbox is None or not hello.program:
            return begins(hello)
        return there != hello.program and not _has_name(hello, mailbox)

    def meet(self, hello: ClientHello, then: Callable[[int], None], there: str = "") -> None:
        """Give a program to which there is no objection its mailbox; ``there``: which program is connected.

        ``then`` is called when that is durable, with the number of the last message that was accepted before.
        """
        mailbox = self._directory.state.mailboxes[hello.name]
        shown, fenced = mailbox.shown, tuple[str, ...]()
        newest = max(held.epoch.number for held in shown.held)
        if self.takes_over(hello, there):
            fenced = tuple(held.epoch.id for held in shown.held if held.epoch.id)
            claim = NEVER_MET.agree(Epoch(newest + 1, _new_id(hello.program)))
        elif begins(hello):
            claim = shown.offer(shown.agreed.epoch, Epoch(newest + 1, _new_id(hello.program)))
        else:
            comparison = self._compare(hello, mailbox)
            claim = shown.offer(comparison.common, Epoch(comparison.next_number, _new_id(hello.program)))
        met = MailboxMet(hello.name, mailbox.since, claim, fenced, mailbox.sent)
        mailbox.met(met)
        self._joining[hello.name] = None

        def durable() -> None:
            self._joining.pop(hello.name, None)
            then(met.sent)

        self._write([met], durable)

    def heard(self, name: str, epoch: Epoch) -> None:
        """A program has said something behind the welcome that gave it this epoch.

        This need not be stored: what is stored has the epoch too, and a call on its way does not survive the server.
        """
        mailbox = self._directory.state.mailboxes.get(name)
        if mailbox is None or mailbox.claim is None or name in self._joining:
            return
        if mailbox.claim.offered is not None and mailbox.claim.offered.epoch == epoch:
            mailbox.claim = mailbox.claim.agree(epoch)

    def _compare(self, hello: ClientHello, mailbox: Mailbox) -> EpochFit:
        mine = Progress(
            mailbox.position, 0, mailbox.sent, mailbox.sent
        )  # A program forgets nothing: it has no store to go back to.
        theirs, claim = hello.progress or Progress(0, 0, 0, 0), hello.claim
        if _shown(hello).id in mailbox.fenced and _has_name(hello, mailbox):
            claim = NEVER_MET.agree(mailbox.shown.agreed.epoch)  # A late call of the program itself has fenced it.
        return compare(Side(self._server, mailbox.shown, {HOME: mine}), Side(hello.name, claim, {HOME: theirs}))

    def _gone(self, hello: ClientHello, mailbox: Mailbox | None) -> str:
        what = "no mailbox" if mailbox is None else "another mailbox"
        if hello.temporary:
            why = "it was away for too long and was forgotten, with what waited for it, or its name was given up"
        else:
            why = "its name was given up"
        return f"{self._server!r} has {what} of {hello.name!r}: {why}, or the server has lost its store. {_known(hello, mailbox)}"

    def _lost(self, hello: ClientHello, comparison: EpochFit) -> str:
        mailbox = self._directory.state.mailboxes[hello.name]
        also = "" if comparison.behind == "me" else ", or another program has had the name since"
        what = f"{self._server!r} has lost what it had of {hello.name!r}: it runs on an old copy of its store{also}"
        return f"{what}. {comparison.reason}. {_known(hello, mailbox)}"


def rejected_before(mailbox: Mailbox, accepted: int) -> list[Rejected]:
    """Return what was rejected of messages up to a number, and their program may not have heard."""
    return [rejected for rejected in runs(mailbox.rejected) if rejected.last <= accepted]


def _known(hello: ClientHello, mailbox: Mailbox | None) -> str:
    progress = hello.progress or Progress(0, 0, 0, 0)
    sent, position = (0, 0) if mailbox is None else (mailbox.sent, mailbox.position)
    return (
        f"The program was told that its messages up to number {progress.acked} are accepted, and the server knows of {sent}. "
        f"It had got messages up to number {progress.received}, and the server knows of {position}. What is between may be lost. "
        "If there is newer data of the server, start it on that; otherwise start the program anew, and it begins with what there "
        "is"
    )


def _accepted(mailbox: Mailbox, epoch: Epoch) -> int:
    """Return the last message that was accepted within an epoch that is fenced; -1: that is not known any more."""
    accepted = mailbox.fenced.get(epoch.id, -1)
    # Of those long ago it is not known any more which were rejected.
    return accepted if accepted >= mailbox.sent - KEEP_REJECTED // 2 else -1


def _shown(hello: ClientHello) -> Epoch:
    return Epoch() if hello.claim is None else hello.claim.agreed.epoch


def _check(hello: ClientHello) -> None:
    """Refuse what no client shows: it would be compared, and stand in the log."""
    _check_program(hello)
    for held in () if hello.claim is None else hello.claim.held:
        epoch = held.epoch
        if len(epoch.id) > MAX_EPOCH_ID_CHARACTERS or not epoch.id.isalnum() or not epoch.id.isascii() or epoch.number < 1:
            raise MalformedFrame(f"client {hello.name!r} shows an epoch that cannot be")
    if hello.progress is None or min(hello.progress.sent, hello.progress.acked, hello.progress.received) < 0:
        raise MalformedFrame(f"client {hello.name!r} does not say how far it is")


def _has_name(hello: ClientHello, mailbox: Mailbox) -> bool:
    """Return whether a mailbox is in an epoch of the program that calls."""
    return bool(hello.program) and any(held.epoch.id.startswith(hello.program) for held in mailbox.shown.held)


def _check_program(hello: ClientHello) -> None:
    if hello.program and not (hello.program.isalnum() and hello.program.isascii() and len(hello.program) == 2 * PROGRAM_BYTES):
        raise MalformedFrame(f"client {hello.name!r} shows an id of a program that cannot be")


def _new_id(program: str) -> str:
    return program + secrets.token_hex(ID_BYTES)
