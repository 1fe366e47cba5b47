"""daisy §3.4 (i) as printed, tried: a server forwards what arrives at once, with the vector of the group it came through.

A local group of three and their server S, and Z behind it, over a line on which everything takes as long. What is sent in the
group carries a vector of four; what goes on to Z carries it too, and Z waits instead of S. The paper says nothing of how. A
``Rule`` is what one can do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Final, NamedTuple

from thence.trace.events import Event

GROUP: Final = ("a", "b", "c", "S")
FAR: Final = "Z"
LINE_MS: Final = 1.0
"""How long everything takes between S and Z."""
Vector = tuple[int, ...]
ZERO: Final[Vector] = (0, 0, 0, 0)


class Rule(NamedTuple):
    """What a server and who is behind it do."""

    early: bool
    """Whether S forwards what arrives, and not only what it delivers."""
    waits: bool = False
    """Whether Z waits for all that a vector counts."""
    words: bool = False
    """Whether S tells Z of each message of the group that is not for it, once it has that."""
    facts: bool = False
    """Whether messages say of all that precedes them in the group whether it is for Z: far more than a vector does."""
    carries: bool = False
    """Whether what Z sends carries what it has seen of the group's vector, and S holds it until it has all of that."""


PLAIN: Final = Rule(early=False)
AS_IT_COMES: Final = Rule(early=True)
WAITING: Final = Rule(early=True, waits=True)
WITH_WORDS: Final = Rule(early=True, waits=True, words=True)
WITH_FACTS: Final = Rule(early=True, waits=True, facts=True)
CARRIED: Final = Rule(early=True, waits=True, facts=True, carries=True)


class Sent(NamedTuple):
    """A message in the group, with its vector; in the name of Z, if S passes it on."""

    name: str
    to: tuple[str, ...]
    sender: str
    vector: Vector


class EarlyRun:
    """One run: everybody in the group sends at random, and Z answers some of what it delivers."""

    def __init__(self, rule: Rule, seed: int, messages: int = 30) -> None:
        """Draw who sends what to whom and when, and how long each frame takes; the same for every rule."""
        self.rule, self.seed = rule, seed
        self.events: list[Event] = []
        self.delivered_at: dict[tuple[str, str], float] = {}
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = count()
        self._clock = dict.fromkeys(GROUP, ZERO)
        self._held: dict[str, list[Sent]] = {name: [] for name in GROUP}
        self._line: list[Sent] = []
        """What Z has got and not delivered."""
        self._known: set[tuple[int, int]] = set()
        """Which messages of the group Z has delivered or was told not to wait for, by sender and number."""
        self._not_for_far: set[tuple[int, int]] = set()
        self._seen = ZERO
        self._answers: list[tuple[Sent, Vector]] = []
        self._numbers = dict.fromkeys((*GROUP, FAR), 0)
        self._index = dict.fromkeys((*GROUP, FAR), 0)
        chance = Random(f"early/{seed}")
        for _ in range(messages):
            sender, others = chance.choice(GROUP[:3]), ["S", FAR]
            to = tuple(sorted(chance.sample([*others, *(one for one in GROUP[:3] if one != sender)], chance.randint(1, 2))))
            self._at(chance.uniform(0, 300), partial(self._send, sender, to))
        while self._due:
            self.now, _, act = heapq.heappop(self._due)
            act()

    @property
    def waiting(self) -> int:
        """How many messages wait for ever."""
        return len(self._line) + len(self._answers) + sum(map(len, self._held.values()))

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._tie), act))

    def _note(self, kind: str, process: str, message: str, to: tuple[str, ...] | None = None) -> None:
        self.events.append(Event(process=process, index=self._index[process], kind=kind, message=message, to=to))
        self._index[process] += 1
        if kind == "deliver":
            self.delivered_at[process, message] = self.now

    def _named(self, sender: str, to: tuple[str, ...]) -> str:
        self._numbers[sender] += 1
        name = f"{sender}:{self._numbers[sender]}"
        self._note("send", sender, name, to)
        return name

    def _send(self, sender: str, to: tuple[str, ...]) -> None:
        self._broadcast(Sent(self._named(sender, to), to, sender, ZERO))

    def _broadcast(self, sent: Sent) -> None:
        """Send a message in the group, to all: to whom it is not for as a marker."""
        self._clock[sent.sender] = _plus(self._clock[sent.sender], sent.sender)
        stamped = sent._replace(vector=self._clock[sent.sender])
        if FAR not in sent.to:
            self._not_for_far.add(_place(stamped))
        for target in GROUP:
            if target != sent.sender:
                took = 5 * Random(f"{self.seed}/{sent.name}/{target}").expovariate(1)
                self._at(self.now + took, partial(self._arrive, target, stamped))

    def _arrive(self, at: str, sent: Sent) -> None:
        if at == "S" and self.rule.early:
            self._forward(sent)
        self._held[at].append(sent)
        while ready := next((one for one in self._held[at] if self._is_next(at, one)), None):
            self._held[at].remove(ready)
            self._clock[at] = _plus(self._clock[at], ready.sender)
            if at in ready.to:
                self._note("deliver", at, ready.name)
            if at == "S":
                if not self.rule.early:
                    self._forward(ready)
                self._take_answers()

    def _is_next(self, at: str, sent: Sent) -> bool:
        before = tuple(n - (name == sent.sender) for name, n in zip(GROUP, sent.vector, strict=True))
        own, clock = GROUP.index(sent.sender), self._clock[at]
        return before[own] == clock[own] and all(n <= have for n, have in zip(before, clock, strict=True))

    def _forward(self, sent: Sent) -> None:
        """Let S send a message on to Z, or a word that it is not for Z."""
        if sent.name.startswith(FAR):
            return
        if FAR in sent.to or self.rule.words:
            self._at(self.now + LINE_MS, partial(self._come, sent))

    def _come(self, sent: Sent) -> None:
        if FAR in sent.to:
            self._line.append(sent)
        else:
            self._known.add(_place(sent))
        while ready := next((one for one in self._line if self._may(one)), None):
            self._line.remove(ready)
            self._known.add(_place(ready))
            self._seen = tuple(map(max, self._seen, ready.vector))
            self._note("deliver", FAR, ready.name)
            chance = Random(f"{self.seed}/answer/{ready.name}")
            if chance.random() < 0.7:
                to = tuple(sorted(chance.sample(GROUP, chance.randint(1, 2))))
                answer = Sent(self._named(FAR, to), to, "S", ZERO)
                self._at(self.now + LINE_MS, partial(self._answered, answer, self._seen))

    def _may(self, sent: Sent) -> bool:
        if not self.rule.waits:
            return True
        before = {(i, number) for i, upto in enumerate(sent.vector[:3]) for number in range(1, upto + 1)} - {_place(sent)}
        return before <= self._known | (self._not_for_far if self.rule.facts else set())

    def _answered(self, answer: Sent, seen: Vector) -> None:
        self._answers.append((answer, seen if self.rule.carries else ZERO))
        self._take_answers()

    def _take_answers(self) -> None:
        """Deliver and pass on what came from Z, in order, once S has delivered all that Z had seen of the group."""
        while self._answers and all(have >= n for n, have in zip(self._answers[0][1][:3], self._clock["S"], strict=False)):
            answer, _ = self._answers.pop(0)
            if "S" in answer.to:
                self._note("deliver", "S", answer.name)
            self._broadcast(answer)


def _place(sent: Sent) -> tuple[int, int]:
    own = GROUP.index(sent.sender)
    return own, sent.vector[own]


def _plus(vector: Vector, sender: str) -> Vector:
    own = GROUP.index(sender)
    return (*vector[:own], vector[own] + 1, *vector[own + 1 :])
