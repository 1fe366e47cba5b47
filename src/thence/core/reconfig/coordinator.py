"""Leads a fabric from one topology to the next: what to ask of whom, given where everybody stands.

Design note: docs/how-to/reconfiguration.md. This is the whole mind of ``thence topology apply``, and of its counterpart in the
simulator. It has no memory that matters: whoever starts anew reads where everybody stands and goes on.

How a change goes: all *hold*; when nothing is on its way any more all are *prepared*; when all are prepared, all *switch*.

Rules, and why they are enough:

* *Quiet* is found by counting (Mattern's rule for termination): two rounds of questions, the second begun when the first was
  over, in which all hold in one attempt and nobody has sent or taken a frame in between, and as many frames were taken as sent.
  Between the two rounds lies a moment for which this is all true at once. From then on nothing can happen: nobody sends
  but who takes.
* Only who has seen quiet prepares others, and only who has seen all prepared, in one attempt, lets them switch. Who holds may go
  back by itself until it is prepared, and can never be in that attempt again. So if all were prepared, nobody has gone back, and
  nobody will. If one has switched, the others are prepared, and need only be told.
* An attempt is *dead* when a member has left it after another one was prepared: seen prepared in one round, and the other one
  seen elsewhere in a later round. (In the same round it would not be enough: the one who seems to have left may not have been in
  it yet.) Then not all can ever be prepared in it, and those who are may go back.
* A member that has lost its state counts anew and numbers its messages anew, so counting says nothing about it. Its peers
  know it by its store, and do not go on with it. Neither does a change: it must be declared lost.
* Members that do not answer and that the change does not concern are left out of an attempt (*absent*), as long as nobody is
  prepared and more than half take part: so of two attempts at different changes only one can have all its members prepared.
  Whoever was left out follows those who have switched. It counts neither for quiet nor for an attempt being dead.
* Members that are *lost* are asked nothing, and nothing is counted that goes to them or came from them. When all others are
  prepared they are given what they lack (``core.reconfig.flush``), and switch only when all have been given it. By then nobody
  can have left.

An attempt is *stuck* when members on whom it counts are declared lost by now: it waits for them for ever. Whoever knows that they
are lost (``lost`` has all with whom the attempt did without, and more) leads the others out of it:

* If one of the others has switched, all of them are prepared, and are told to switch: that change is finished. Otherwise those
  who hold go back, and if some are prepared and others are not, the attempt is dead as above.
* If all of the others are prepared and none is seen to have switched, they may not go back one by one: a request to switch may
  be on its way to one of them, from a command that saw all prepared, the lost one, too. So first all are *barred*: they promise
  not to switch. Only when all are barred, without the same lost ones, they go back. If one has switched before it could be
  barred, all are told to switch.
* Why they cannot go apart. Say that all outside of L were barred without L. None of them had switched when it was barred, and
  who is barred switches only on the word of somebody who has seen one outside of L switch: the first to do so has nobody to
  follow. The other way round, if one outside of L has switched unbarred, not all can ever be barred, and nobody goes back.
  Who is barred may be barred again without more, never without fewer, and follows a word only if that names the same as lost as
  it was told itself. So the argument holds for ever larger sets, for those who are outside of them, whatever commands that knew
  of fewer lost ones still have on their way; and of two sets of which none holds the other only one can be complete.
* The lost ones themselves may have switched, and live on. That is nobody's word: they are left behind, as the declaration says,
  and expelled when they speak.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from thence.core.reconfig.concern import concerned_by, why_everybody
from thence.core.reconfig.protocol import (
    BarLost,
    Follow,
    Hold,
    Prepare,
    Resume,
    Standing,
    Switch,
    ViewInput,
    check_declared,
    check_lost,
    check_successor,
    is_majority,
)
from thence.core.topology.model import Topology
from thence.errors import UsageError
from thence.words import counted

HELD = ("holding", "prepared", "flushed")
PREPARED = ("prepared", "flushed")

LEAVE_OUT_AFTER = 3
"""In how many rounds somebody must not answer before a change that does not concern it goes on without it."""


class Decision(NamedTuple):
    """What to ask of whom now."""

    requests: Mapping[str, ViewInput]
    said: str
    """What is going on, for people."""
    done: bool = False
    flush: tuple[str, ...] = ()
    """Who is to be given what it lacks, by the reports of all (``core.reconfig.flush``)."""


class Coordinator:
    """One run of the command that changes a fabric."""

    def __init__(self, old: Topology, new: Topology, lost: tuple[str, ...] = (), *, back: bool = False) -> None:
        """Lead the members of ``old`` to ``new``, without those who are ``lost``; or only ``back``, and ``new`` may have them."""
        check_successor(old, new)
        if back:
            check_declared(old, lost)
        else:
            check_lost(old, new, lost)
        self.old = old
        self.new = new
        self.lost = lost
        self.absent: tuple[str, ...] = ()
        """Who is left out: it does not answer, and the change does not concern it."""
        self.limited = not why_everybody(old, new, lost)
        """Whether only those hold whom the change concerns; the others take part and go on."""
        self.concerned = concerned_by(old, new, lost)
        self._silent: tuple[str, ...] = ()
        self._silences = 0
        """Who did not answer, and in how many rounds."""
        self.attempt = 0
        """The attempt that this run leads or has joined."""
        self.before: Mapping[str, Standing] = {}
        """The round before, if all had answered."""
        self.rolling = False
        """Whether somebody had switched in an earlier round."""

    @property
    def members(self) -> tuple[str, ...]:
        """All who take part."""
        return tuple(name for name in self.old.processes if name not in self.lost and name not in self.absent)

    def _hear(self, answers: Mapping[str, Standing], *, back: bool = False) -> tuple[str, ...]:
        """Return who does not answer and is waited for. Others may have begun without somebody; or we do."""
        held = [one for one in answers.values() if one.phase in HELD and one.next_fingerprint == self.new.fingerprint]
        if held and self.limited:
            self.absent = max(held, key=lambda standing: standing.attempt).absent
        silent = tuple(name for name in self.members if name not in answers)
        self._silences = self._silences + 1 if silent and silent == self._silent else 1
        self._silent = silent
        prepared = any(standing.phase in PREPARED for standing in held)  # It may be one of those who decide.
        if self._silences < LEAVE_OUT_AFTER or not self.may_miss((*silent, *self.absent)) or (prepared and not back):
            return silent
        self.absent, self.attempt = (*self.absent, *silent), 0
        return ()

    def may_miss(self, names: Collection[str]) -> bool:
        """Return whether the change can go on without these."""
        return self.limited and not set(names) & set(self.concerned) and is_majority(self.old, names)

    # Forwards.

    def decide(self, answers: Mapping[str, Standing], clock: int) -> Decision:
        """Go on from where everybody stands. ``clock`` makes numbers of attempts that rise, wherever commands run."""
        late = {name: one for name, one in answers.items() if one.version < self.old.version and one.phase == "normal"}
        if late:  # The change before did not concern them, and they have not heard of it.
            ahead = tuple(name for name in answers if name not in late)
            return Decision(
                dict.fromkeys(late, Follow(self.old, ahead)), f"telling {_named(list(late))} of version {self.old.version}"
            )
        behind = self._behind(answers)
        if len(behind) < len(answers):
            decision = self._roll_forward(behind, answers)
            if decision.done:  # The others go on in any case. But one that came back without its data is none of them.
                self._check_memory(answers)
            return decision
        silent = self._hear(answers)
        if silent:
            return Decision({}, f"waiting for {_named(list(silent))} to answer")
        answers = {name: answers[name] for name in self.members}
        self._check_memory(answers)
        before, self.before = self.before, dict(answers)
        attempts = {standing.attempt for standing in answers.values()}
        if self.attempt and max(attempts) > self.attempt:
            raise UsageError(f"another command leads this change by now (attempt {max(attempts)}); leave it to that one")
        if any(self._is_stuck(standing) for standing in answers.values()):
            return self._make_way(before, answers)
        if len(attempts) == 1 and all(standing.phase in HELD for standing in answers.values()):
            return self._go_on(attempts.pop(), before, answers)
        return self._hold(before, answers, clock)

    def _roll_forward(self, behind: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        rolling, self.rolling = self.rolling, True
        there = {_arrived(standing) for name, standing in answers.items() if name not in behind}
        left_out = {name for standing in behind.values() for name in standing.absent}
        aside = {
            name: one for name, one in behind.items() if not _may_switch(one) and (name in left_out or self.may_miss([name]))
        }
        unprepared = [
            name
            for name, standing in behind.items()
            if name not in aside and (not _may_switch(standing) or {standing.next_fingerprint} != there)
        ]
        # Who was asked first may have been prepared and more since then: only a later round tells.
        if unprepared and rolling:
            raise UsageError(
                f"some have switched to version {self.new.version} and {_named(unprepared)} never held for it: "
                "was the data of one of them put back, or another file given?"
            )
        ready = {name: standing for name, standing in behind.items() if name not in unprepared and name not in aside}
        requests: dict[str, ViewInput] = {
            name: Switch(standing.attempt, without=standing.barred) for name, standing in ready.items()
        }
        if there == {self.new.fingerprint}:  # They had no part in it. Else only their peers can tell them.
            requests |= dict.fromkeys(aside, Follow(self.new, tuple(name for name in answers if name not in behind)))
        silent = [name for name in self.members if name not in answers]
        self.absent = (*self.absent, *(name for name in silent if self.may_miss([name])))
        waiting = len([name for name in silent if name not in self.absent]) + len(behind)
        servers = counted(len(self.members), "server", "have")
        said = f"{len(self.members) - waiting} of {servers} switched to version {self.new.version}"
        return Decision(requests, said, done=not waiting)

    def _go_on(self, attempt: int, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        """All are in one attempt."""
        self.attempt = attempt
        unprepared = [name for name, standing in answers.items() if standing.phase == "holding"]
        if not unprepared:
            lacking = tuple(name for name, standing in answers.items() if standing.phase == "prepared") if self.lost else ()
            if lacking:
                return Decision({}, f"giving {_named(list(lacking))} what they lack of {_named(list(self.lost))}", flush=lacking)
            return Decision({name: Switch(attempt) for name in answers}, "all are prepared; switching")
        if len(unprepared) < len(answers):
            return Decision({name: Prepare(attempt) for name in unprepared}, f"preparing {_named(unprepared)}")
        if self._quiet(before, answers):
            return Decision({name: Prepare(attempt) for name in answers}, "all hold and nothing is on its way; preparing")
        return Decision({}, self._unrest(answers))

    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        if set(before) != set(answers):
            return False
        sent, received = (sum(standing.moved[at] for standing in answers.values()) for at in (0, 1))
        return sent == received and all(
            standing.idle and before[name].idle and _same(standing, before[name]) for name, standing in answers.items()
        )

    def _unrest(self, answers: Mapping[str, Standing]) -> str:
        waiting = sum(standing.waiting for standing in answers.values())
        busy = [f"{name}: {standing.trouble}" for name, standing in answers.items() if not standing.idle]
        return f"all hold ({counted(waiting, 'submission', 'wait')}); {busy[0] if busy else 'counting once more'}"

    def _hold(self, before: Mapping[str, Standing], answers: Mapping[str, Standing], clock: int) -> Decision:
        """Not all are in one attempt: free those who are in a dead one, then have all hold in a new one."""
        prepared = {name: standing for name, standing in answers.items() if standing.phase == "prepared"}
        if prepared:
            return Decision(
                self._free(prepared, before, answers), f"freeing {_named(list(prepared))} from an attempt that is dead"
            )
        newest = max(standing.attempt for standing in answers.values())
        left = any(standing.attempt == self.attempt and standing.phase == "normal" for standing in answers.values())
        if not self.attempt or left:
            self.attempt = max(clock, newest + 1)
        missing = [name for name, standing in answers.items() if standing.attempt < self.attempt]
        hold = Hold(self.attempt, self.new, self.lost, self.limited, self.absent)
        return Decision(dict.fromkeys(missing, hold), f"asking {_named(missing)} to hold")

    def _free(
        self, prepared: Mapping[str, Standing], before: Mapping[str, Standing], answers: Mapping[str, Standing]
    ) -> dict[str, ViewInput]:
        freed: dict[str, ViewInput] = {}
        for name, standing in prepared.items():
            attempt = standing.attempt
            was = before.get(name)
            seen_before = was is not None and was.phase in PREPARED and was.attempt == attempt
            parts = [other for one, other in answers.items() if one not in standing.absent]
            if seen_before and any(other.attempt != attempt or other.phase not in HELD for other in parts):
                freed[name] = Resume(attempt, dead=True)
        return freed

    # Out of an attempt that is stuck.

    def _is_stuck(self, standing: Standing) -> bool:
        """Whether somebody is held in an attempt that counts on one who is lost."""
        return standing.phase in HELD and set(standing.lost) < set(self.lost)

    def _make_way(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        """Nobody has switched, and all have answered: lead all out of an attempt that is stuck."""
        stuck = {name: standing for name, standing in answers.items() if self._is_stuck(standing)}
        prepared = {name: standing for name, standing in stuck.items() if standing.phase in PREPARED}
        said = f"freeing {_named(list(stuck))} from an attempt that counts on {_named(list(self.lost))}"
        absent = {name for standing in prepared.values() for name in standing.absent}
        parts = {name: standing for name, standing in answers.items() if name not in absent}
        if len(prepared) == len(parts) and len({standing.attempt for standing in parts.values()}) == 1:
            free = [name for name, standing in parts.items() if standing.barred != self.lost]
            free += [name for name in absent & answers.keys() if not set(self.lost) <= set(answers[name].disowned)]
            if free:
                bars = {name: BarLost(0 if name in absent else answers[name].attempt, self.lost) for name in free}
                return Decision(bars, f"all are prepared, and {_named(list(self.lost))} with them: barring {_named(free)}")
            return Decision({name: Resume(standing.attempt, dead=True) for name, standing in parts.items()}, said)
        holding: dict[str, ViewInput] = {
            name: Resume(standing.attempt) for name, standing in stuck.items() if standing.phase == "holding"
        }
        return Decision(holding | self._free(prepared, before, answers), said)

    # Backwards.

    def decide_abort(self, answers: Mapping[str, Standing]) -> Decision:
        """Take everybody back to normal, as long as that is possible."""
        behind = self._behind(answers)
        if len(behind) < len(answers):
            raise UsageError(
                f"some have switched to version {self.new.version} already: it can only be finished, without --abort"
            )
        requests: dict[str, ViewInput] = {
            name: Resume(standing.attempt) for name, standing in answers.items() if standing.phase == "holding"
        }
        silent = self._hear(answers, back=True)
        if silent:
            return Decision(requests, f"waiting for {_named(list(silent))} to answer")
        before, self.before = self.before, dict(answers)
        prepared = {name: standing for name, standing in answers.items() if standing.phase in PREPARED}
        absent = {name for standing in prepared.values() for name in standing.absent}
        if len(prepared) == len(answers.keys() - absent) and len({standing.attempt for standing in prepared.values()}) == 1:
            if all(self._is_stuck(standing) for standing in prepared.values()):
                return self._make_way(before, answers)
            raise UsageError("all are prepared, and may have switched by now: it can only be finished, without --abort")
        requests |= self._free(prepared, before, answers)
        held = [name for name, standing in answers.items() if standing.phase in HELD]
        return Decision(requests, counted(len(held), "server", "hold"), done=not held)

    # Both.

    def _behind(self, answers: Mapping[str, Standing]) -> dict[str, Standing]:
        """Return those that have not switched; refuse those that are somewhere else altogether."""
        behind: dict[str, Standing] = {}
        # Somebody may have switched in an attempt from which others have still to be led out.
        targets = {self.new.fingerprint, *(one.next_fingerprint for one in answers.values() if self._is_stuck(one))}
        for name, standing in answers.items():
            if (standing.phase == "left" or standing.version == self.new.version) and _arrived(standing) in targets:
                continue
            if (standing.version, standing.fingerprint) != (self.old.version, self.old.fingerprint):
                ahead = standing.version >= self.new.version
                late = f". What follows that one has version {standing.version + 1}" if ahead else ""
                raise UsageError(
                    f"{name!r} has version {standing.version} ({standing.fingerprint}); this leads from version "
                    f"{self.old.version} ({self.old.fingerprint}) to version {self.new.version} ({self.new.fingerprint}){late}"
                )
            if standing.phase in HELD:
                self._check_held(name, standing)
            behind[name] = standing
        return behind

    def _check_memory(self, answers: Mapping[str, Standing]) -> None:
        """Refuse to go on with one that has forgotten what it had said to others."""
        for name, standing in answers.items():
            stores = [one for one, store in standing.met if one in answers and answers[one].store not in ("", store)]
            forgetful = [*stores, *(one for one in standing.forgetful if one in answers and one != name)]
            if forgetful:
                raise UsageError(
                    f"{name!r} does not go on with {forgetful[0]!r}: one of the two runs on another store than before, or on an "
                    "old copy of it, and has forgotten what it had acknowledged. Start it on its newest data; if "
                    f"{forgetful[0]!r} has lost them for good, stop it and remove it with --lost {forgetful[0]}"
                )
        doubtful = [name for name, standing in answers.items() if name in standing.forgetful]  # Whoever knows better comes first.
        if doubtful:
            raise UsageError(
                f"{doubtful[0]!r} may run on an old copy of its store, and does not go on with a peer: thence status says with "
                "whom. Start both on their newest data; if one has lost them for good, stop it and remove it with --lost"
            )

    def _check_held(self, name: str, standing: Standing) -> None:
        """Refuse to lead those who are in another change, unless they could never get out of it."""
        unknown = [one for one in standing.barred if one not in self.lost]
        if unknown:
            raise UsageError(
                f"{name!r} is {standing.phase}, and was told that {_named(unknown)} is lost by now: go on with --lost "
                f"{','.join(sorted({*self.lost, *unknown}))}, and a version without them"
            )
        if self._is_stuck(standing):
            return
        if standing.next_fingerprint != self.new.fingerprint:
            raise UsageError(
                f"{name!r} holds for another topology ({standing.next_fingerprint}, not {self.new.fingerprint}): "
                "finish that one, or abort it"
            )
        if standing.limited != self.limited:
            whom = "some" if standing.limited else "everybody"
            raise UsageError(f"{name!r} holds as if the change concerned {whom}: does it run another version of thence?")
        if standing.lost != self.lost:
            raise UsageError(
                f"{name!r} holds with {_named(list(standing.lost)) or 'nobody'} declared lost, not "
                f"{_named(list(self.lost)) or 'nobody'}: finish that change, or abort it"
            )


def _arrived(standing: Standing) -> str:
    """Return which topology somebody has who may have switched, or with which one it has left."""
    return standing.next_fingerprint if standing.phase == "left" else standing.fingerprint


def _may_switch(standing: Standing) -> bool:
    return standing.phase == ("flushed" if standing.lost else "prepared")


def _same(one: Standing, other: Standing) -> bool:
    return (one.phase, one.attempt, one.moved) == (other.phase, other.attempt, other.moved)


def _named(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
