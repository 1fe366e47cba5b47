"""Epochs of clients, tried on a model: programs, a server that crashes at any step and goes back to old copies, lost welcomes.

The model knows what the module under test does not: which program sent what stands under each number at the server, and which run
of the server sent what stands at each position. Nobody may go on with numbers or positions that mean something else to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

import msgspec
import pytest

from thence.client.resume import Resumption
from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, Held
from thence.core.epochs.progress import Progress
from thence.errors import MalformedFrame
from thence.net.protocol import ClientHello, ClientWelcome, Refused
from thence.node.directory.directory import Directory
from thence.node.directory.homes import FENCED, LOST, Homes, new_mailbox
from thence.storage.mailbox import KEEP_FENCED, Mailbox

SEEDS = 300
STEPS = 50


@dataclass(frozen=True)
class Disk:
    """What a server has stored of one mailbox: its state, what each number brought, and what stands at each position."""

    mailbox: bytes
    taken: tuple[tuple[int, int], ...] = ()
    mail: tuple[str, ...] = ()


@dataclass
class Program:
    """One program: what it has sent, what it was told to be accepted, and what it got."""

    id: int
    resuming: Resumption = field(default_factory=Resumption)
    base: int = 0
    number: int = 0
    accepted: int = 0
    got: tuple[str, ...] = ()
    refused: Refused | None = None

    def hello(self) -> ClientHello:
        return self.resuming.introduce(ClientHello(1, "ann"), self.number, len(self.got))


class World:
    """A server with one mailbox, and programs that want it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.ids = count(1)
        self.disk = Disk(msgspec.msgpack.encode(Mailbox(since=1, id=new_mailbox())))
        self.copies = [self.disk]
        self.runs = 0
        self.rolled_back = False
        self.program = Program(next(self.ids))
        self.older: list[Program] = []
        self.start()

    def start(self) -> None:
        self.runs += 1
        self.directory = Directory("s1", ["s1"])
        self.directory.state.mailboxes["ann"] = msgspec.msgpack.decode(self.disk.mailbox, type=Mailbox)
        self.homes = Homes("s1", self.directory, lambda _, then: then())
        self.homes.started()
        self.late: list[ClientHello] = []
        """Calls that their programs may have given up, and that may still arrive."""
        self.store()

    @property
    def mailbox(self) -> Mailbox:
        return self.directory.state.mailboxes["ann"]

    def store(self, **changed: object) -> None:
        self.disk = replace(self.disk, mailbox=msgspec.msgpack.encode(self.mailbox), **changed)  # type: ignore[arg-type]
        self.copies.append(self.disk)

    def call(self, program: Program) -> None:
        """Let a program connect and exchange something; a crash, or a lost welcome, may come in between."""
        hello = program.hello()
        self.late.append(hello)
        refused = self.homes.objection(hello)
        if refused is not None:
            self.check_refusal(program, refused)
            return
        self.homes.meet(hello, lambda _: None)
        if program is not self.program:
            assert self.rolled_back, "only whoever has the name gets in"
            self.older = [older for older in (*self.older, self.program) if older is not program]
            self.program = program  # The copy does not know that it was fenced.
        if self.chance.random() < 0.15:
            self.start()  # It was never durable, and nobody has heard of it.
            return
        self.store()
        if self.chance.random() < 0.2:
            return  # The welcome is lost.
        if program.resuming.welcome is None:
            program.base = program.number = program.accepted = self.mailbox.sent
        *_, held = self.mailbox.shown.held
        welcome = ClientWelcome("s1", "f", self.mailbox.sent, self.mailbox.sent, 0, epoch=held.epoch, mailbox_id=self.mailbox.id)
        assert not program.resuming.objection(welcome, "ann", program.number, len(program.got))
        program.resuming.welcomed(welcome)
        if self.chance.random() < 0.7:
            self.homes.heard("ann", held.epoch)
        program.accepted = max(program.accepted, self.mailbox.sent)
        self.check(program)
        self.exchange(program)

    def exchange(self, program: Program) -> None:
        for _ in range(self.chance.randrange(3)):
            program.number += 1
            if self.chance.random() < 0.7:  # It arrives, with all before it.
                while self.mailbox.sent < program.number:
                    self.mailbox.sent += 1
                    self.store(taken=(*self.disk.taken, (program.id, self.mailbox.sent)))
                if self.chance.random() < 0.7:
                    program.accepted = program.resuming.stored = self.mailbox.sent
        self.mail_comes()
        if self.chance.random() < 0.7:
            program.got = self.disk.mail[: self.chance.randint(len(program.got), self.mailbox.position)]
        self.check(program)

    def mail_comes(self) -> None:
        for _ in range(self.chance.randrange(3)):
            self.mailbox.position += 1
            self.store(mail=(*self.disk.mail, f"run {self.runs}, {self.mailbox.position}"))

    def check(self, program: Program) -> None:
        """What the program was told to be accepted is there as it sent it, and what it got is there as it got it."""
        mine = range(program.base + 1, program.accepted + 1)
        assert [self.disk.taken[number - 1] for number in mine] == [(program.id, number) for number in mine]
        assert program.got == self.disk.mail[: len(program.got)]

    def check_refusal(self, program: Program, refused: Refused) -> None:
        program.refused = refused
        assert not refused.later
        if self.rolled_back:
            return
        assert program is not self.program, f"a false alarm: {refused.reason}"
        assert refused.cause == FENCED
        if refused.accepted >= 0:
            kept = {number for sender, number in self.disk.taken if sender == program.id}
            assert {number for number in range(program.base + 1, program.number + 1) if number <= refused.accepted} == kept

    def arrives_late(self) -> None:
        """A call arrives whose program has given it up: nobody hears of the answer."""
        hello = self.chance.choice(self.late)
        if self.homes.objection(hello) is None:
            self.homes.meet(hello, lambda _: None)
            self.store()

    def step(self, *, faults: bool) -> None:
        what = self.chance.random()
        if self.late and self.chance.random() < 0.2:
            self.arrives_late()
        if self.chance.random() < 0.3:
            self.mail_comes()
        if what < 0.45:
            self.call(self.program)
        elif what < 0.6 and self.older:
            self.call(self.chance.choice(self.older))
        elif what < 0.7:
            begun = Program(next(self.ids))
            was, self.program = self.program, begun
            self.call(begun)
            if begun.resuming.welcome is None:
                self.program = begun  # It calls again until it is welcome, and the name is its own from the first try.
            if was.resuming.welcome is not None and self.fences(was):
                self.older.append(was)
            elif was.resuming.welcome is not None:
                self.program = was  # The server died before it had stored anything.
        elif what < 0.85 or not faults:
            self.start()
        else:
            self.disk = self.chance.choice(self.copies[-12:])
            self.rolled_back = True
            self.start()
        self.older = [older for older in self.older if older.refused is None]
        if self.program.refused is not None:
            self.program = Program(next(self.ids))

    def fences(self, was: Program) -> bool:
        return self.homes.objection(was.hello()) is not None


@pytest.mark.parametrize("block", range(3))
def test_without_rollback_only_older_programs_are_refused_and_hear_what_was_accepted(block: int) -> None:
    fenced = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            older = list(world.older)
            world.step(faults=False)
            fenced += sum(one.refused is not None for one in older)
    assert fenced > SEEDS


@pytest.mark.parametrize("block", range(3))
def test_no_number_and_no_position_means_two_things_whatever_copy_the_server_goes_back_to(block: int) -> None:
    lost = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            program = world.program
            world.step(faults=True)
            lost += program.refused is not None and program.refused.cause == LOST
    assert lost > SEEDS // 4, "rollbacks were hardly ever noticed: the model does not do what it says"


@pytest.mark.parametrize("mistake", ["no epochs", "no reach", "the same epoch for all"])
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "no epochs":
        monkeypatch.setattr(Homes, "objection", lambda *_: None)
        monkeypatch.setattr(Homes, "meet", lambda *_: None)
    elif mistake == "no reach":
        monkeypatch.setattr(Homes, "started", lambda _: None)
    else:
        monkeypatch.setattr(Homes, "meet", lambda *_: None)
    found = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step(faults=True)
        except (AssertionError, IndexError):
            found += 1
    assert found, "the search finds nothing, so its silence above means nothing"


def with_mailbox(**fields: object) -> tuple[Directory, Homes]:
    directory = Directory("s1", ["s1"])
    directory.state.mailboxes["ann"] = Mailbox(since=1, **fields)  # type: ignore[arg-type]
    return directory, Homes("s1", directory, lambda _, then: then())


def resumes(epoch: Epoch, mailbox: int, progress: Progress | None = None) -> ClientHello:
    progress = progress or Progress(0, 0, 0, 0)
    return ClientHello(1, "ann", claim=NEVER_MET.agree(epoch), progress=progress, mailbox_id=mailbox)


def test_a_mailbox_of_version_0_1_gets_its_first_epoch_from_whoever_comes() -> None:
    directory, homes = with_mailbox()
    homes.started()
    for hello in (ClientHello(1, "ann"), ClientHello(1, "ann", claim=NEVER_MET)):
        assert homes.objection(hello) is None
        homes.meet(hello, lambda _: None)
    assert directory.state.mailboxes["ann"].shown.agreed.epoch.number == 2
    assert len(directory.state.mailboxes["ann"].fenced) == 1


def test_a_program_that_knows_no_epochs_fences_those_that_do() -> None:
    directory, homes = with_mailbox(id=7)
    hello = resumes(directory.state.mailboxes["ann"].shown.agreed.epoch, 7)
    assert homes.objection(hello) is None
    homes.meet(ClientHello(1, "ann"), lambda _: None)
    refused = homes.objection(hello)
    assert refused is not None
    assert refused.cause == FENCED


def test_only_so_many_older_programs_hear_what_was_accepted_and_all_hear_that_they_are_fenced() -> None:
    directory, homes = with_mailbox(id=7)
    mailbox, hellos = directory.state.mailboxes["ann"], []
    for number in range(KEEP_FENCED + 3):
        hellos.append(resumes(mailbox.shown.agreed.epoch, 7))
        mailbox.sent = 10 * number
        homes.meet(ClientHello(1, "ann", claim=NEVER_MET), lambda _: None)
    refusals = [homes.objection(hello) for hello in hellos]
    assert [refused and refused.cause for refused in refusals] == [FENCED] * len(hellos)
    known = [10 * number for number in range(3, KEEP_FENCED + 3)]
    assert [refused and refused.accepted for refused in refusals] == [-1, -1, -1, *known]


@pytest.mark.parametrize("heard", [False, True], ids=["before the program has said anything", "after it has"])
def test_a_call_that_was_given_up_and_arrives_late_does_not_refuse_its_own_program(heard: bool) -> None:
    directory, homes = with_mailbox(id=7)
    mailbox = directory.state.mailboxes["ann"]
    homes.meet(ClientHello(1, "ann", claim=NEVER_MET), lambda _: None)
    given_up = resumes(mailbox.shown.agreed.epoch, 7)
    homes.meet(resumes(mailbox.shown.agreed.epoch, 7), lambda _: None)
    *_, held = mailbox.shown.held
    if heard:
        homes.heard("ann", held.epoch)
    assert (homes.objection(given_up) is None) is not heard
    if not heard:
        homes.meet(given_up, lambda _: None)
    assert homes.objection(resumes(held.epoch, 7)) is None


@pytest.mark.parametrize("connected", [False, True], ids=["away", "connected"])
def test_the_first_call_of_a_program_that_arrives_late_does_not_take_its_name_from_itself(connected: bool) -> None:
    directory, homes = with_mailbox(id=7)
    mailbox, program = directory.state.mailboxes["ann"], "0123456789abcdef"
    first = ClientHello(1, "ann", claim=NEVER_MET, program=program)
    if not connected:  # Otherwise the name is new, and its first epoch is that of the mailbox.
        homes.meet(first, lambda _: None)
    *_, held = mailbox.shown.held
    there, fenced = program if connected else "", mailbox.fenced
    assert not homes.takes_over(first, there)
    assert homes.objection(first) is None
    homes.meet(first, lambda _: None, there)
    assert homes.objection(resumes(held.epoch, 7)) is None
    assert mailbox.fenced == fenced


def test_a_program_that_its_own_late_call_has_fenced_goes_on() -> None:
    """The name is new, so that its first epoch does not show whose it is, and nobody is connected when the call arrives."""
    directory, homes = with_mailbox(id=7)
    mailbox, program = directory.state.mailboxes["ann"], "0123456789abcdef"
    goes_on = msgspec.structs.replace(resumes(mailbox.shown.agreed.epoch, 7, Progress(3, 3, 0, 0)), program=program)
    other = msgspec.structs.replace(goes_on, program="f" * 16)
    mailbox.sent = 3
    homes.meet(ClientHello(1, "ann", claim=NEVER_MET, program=program), lambda _: None)
    assert homes.objection(goes_on) is None
    assert homes.objection(other) is not None
    homes.meet(goes_on, lambda _: None)
    *_, held = mailbox.shown.held
    assert homes.objection(msgspec.structs.replace(goes_on, claim=NEVER_MET.agree(held.epoch))) is None


def test_a_program_that_was_fenced_does_not_begin_again() -> None:
    _, homes = with_mailbox(id=7)
    older, newer = (ClientHello(1, "ann", claim=NEVER_MET, program=16 * item) for item in "ab")
    for hello in (older, newer):
        assert homes.objection(hello) is None
        assert homes.takes_over(hello)
        homes.meet(hello, lambda _: None)
    refused = homes.objection(older)
    assert refused is not None
    assert (refused.cause, refused.accepted) == (FENCED, 0)


@pytest.mark.parametrize("program", ["x", "\x1b" * 16, "a" * 64])
def test_an_id_of_a_program_that_cannot_be_is_refused(program: str) -> None:
    _, homes = with_mailbox(id=7)
    with pytest.raises(MalformedFrame, match="cannot be"):
        homes.objection(ClientHello(1, "ann", claim=NEVER_MET, program=program))


def test_of_each_mailbox_one_epoch_is_made_durable_at_a_time() -> None:
    waiting = []
    directory = Directory("s1", ["s1"])
    directory.state.mailboxes["ann"] = Mailbox(since=1, id=7)
    homes = Homes("s1", directory, lambda _, then: waiting.append(then))
    homes.meet(ClientHello(1, "ann", claim=NEVER_MET), lambda _: None)
    refused = homes.objection(ClientHello(1, "ann", claim=NEVER_MET))
    assert refused is not None
    assert refused.later
    waiting.pop()()
    assert homes.objection(ClientHello(1, "ann", claim=NEVER_MET)) is None


@pytest.mark.parametrize(
    "claim",
    [
        Claim(Held(Epoch(1, "x" * 65))),
        Claim(Held(Epoch(1, "\x1b[2J"))),
        Claim(Held(Epoch(-1, "a"))),
        Claim(Held(Epoch(1, "a")), Held(Epoch(0, ""))),
    ],
)
def test_epochs_that_no_client_has_are_refused_unread(claim: Claim) -> None:
    _, homes = with_mailbox(id=7)
    with pytest.raises(MalformedFrame, match="shows an epoch that cannot be"):
        homes.objection(ClientHello(1, "ann", claim=claim, progress=Progress(0, 0, 0, 0), mailbox_id=7))


def test_a_program_whose_messages_an_operator_dropped_while_it_was_away_is_told() -> None:
    directory, homes = with_mailbox(id=7, position=5)
    hello = resumes(directory.state.mailboxes["ann"].shown.agreed.epoch, 7, Progress(0, 0, 2, 2))
    assert homes.objection(hello) is None
    directory.state.mailboxes["ann"].acknowledged = 5
    refused = homes.objection(hello)
    assert refused is not None
    assert "dropped by an operator" in refused.reason


@pytest.mark.parametrize("there", [True, False], ids=["another mailbox", "no mailbox"])
def test_a_program_does_not_go_on_in_another_mailbox_of_its_name(there: bool) -> None:
    """Its own is gone: the name was given up, or the store was emptied, or is older than the mailbox."""
    directory, homes = with_mailbox(id=7)
    if not there:
        del directory.state.mailboxes["ann"]
    refused = homes.objection(resumes(Epoch(1, "a"), 8, Progress(3, 3, 2, 2)))
    assert refused is not None
    assert (refused.cause, refused.later) == (LOST, False)
    assert f"'s1' has {'another' if there else 'no'} mailbox of 'ann'" in refused.reason
    assert "up to number 3 are accepted, and the server knows of 0" in refused.reason


def test_ids_of_mailboxes_are_random() -> None:
    drawn = {new_mailbox() for _ in range(1_000)}
    assert len(drawn) == 1_000
    assert all(0 < one < 2**63 for one in drawn)
    assert max(drawn) > 2**60
