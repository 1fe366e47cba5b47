"""The table of violations, taken literally: slow, plain, and sharing nothing with the judge but the row it gives back.

Happens-before is a transitive closure by Floyd and Warshall, every question is a loop over all messages. It is for
small traces, as the word of the definition against which the judge and the audit are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thence.trace.events import Event
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES

Row = tuple[str | None, str, str, int | None, str | None, str | None, int, tuple[str, ...]]
"""run, property, process, index, later, earlier, missing, chain."""


def judge_literally(events: Sequence[Event], require: Sequence[str] = DEFAULT_REQUIRED) -> list[Row]:
    """All rows, sorted by what they say."""
    rows: list[Row] = []
    for run in {event.run for event in events}:
        literal = Literal([event for event in events if event.run == run])
        for name in PROPERTIES:
            if name in require:
                rows.extend((run, name, *row) for row in getattr(literal, name.replace("-", "_"))())
    return sorted(rows, key=repr)


_Row = tuple[str, int | None, str | None, str | None, int, tuple[str, ...]]


class Literal:
    """One run."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = sorted(
            events, key=lambda e: (e.process, e.index, e.kind, e.message is not None, e.message or "", e.to or ())
        )
        self.place = range(len(self.events))
        self.sends: dict[str, int] = {}
        for n in self.place:
            if self.events[n].kind == "send" and self.events[n].message is not None:
                self.sends.setdefault(str(self.events[n].message), n)
        self.deliveries = [n for n in self.place if self.events[n].kind == "deliver" and self.events[n].message is not None]
        self.first = [n for n in self.deliveries if not any(self._same(k, n) for k in self.deliveries if k < n)]
        everything = self._closure(set())
        self.backward = {n for n in self.deliveries if self._sent(n) is not None and everything[n][self.sends[self._message(n)]]}
        self.before = self._closure(self.backward)

    def _message(self, n: int) -> str:
        return str(self.events[n].message)

    def _sent(self, n: int) -> int | None:
        return self.sends.get(self._message(n))

    def _same(self, k: int, n: int) -> bool:
        return self.events[k].process == self.events[n].process and self._message(k) == self._message(n)

    def _closure(self, left_out: set[int]) -> list[list[bool]]:
        before = [[False] * len(self.events) for _ in self.place]
        for n in self.place[1:]:
            before[n - 1][n] = self.events[n - 1].process == self.events[n].process
        for n in self.deliveries:
            sent = self._sent(n)
            if sent is not None and n not in left_out:
                before[sent][n] = True
        for k in self.place:
            for i in self.place:
                if before[i][k]:
                    before[i] = [a or b for a, b in zip(before[i], before[k], strict=True)]
        return before

    def well_formed(self) -> Iterator[_Row]:
        for n in self.place:
            event = self.events[n]
            same = n > 0 and self.events[n - 1].process == event.process
            previous = max(self.events[n - 1].index, -1) if same else -1
            wrong = event.index != previous + 1
            wrong |= event.kind in ("send", "deliver") and event.message is None
            wrong |= event.kind == "send" and event.to is None
            wrong |= event.kind == "send" and event.message is not None and self.sends[event.message] != n
            if wrong:
                yield event.process, event.index, event.message, None, 0, ()

    def creation(self) -> Iterator[_Row]:
        for n in self.first:
            sent = self._sent(n)
            to = None if sent is None else self.events[sent].to
            if sent is None or n in self.backward or (to is not None and self.events[n].process not in to):
                yield self.events[n].process, self.events[n].index, self._message(n), None, 0, ()

    def duplication(self) -> Iterator[_Row]:
        for n in self.deliveries:
            if n not in self.first:
                yield self.events[n].process, self.events[n].index, self._message(n), None, 0, ()

    def fifo(self) -> Iterator[_Row]:
        return self._overtakings(same_sender=True)

    def causal(self) -> Iterator[_Row]:
        return self._overtakings(same_sender=False)

    def _overtakings(self, *, same_sender: bool) -> Iterator[_Row]:
        for n in self.first:
            sent = self._sent(n)
            if sent is None or n in self.backward:
                continue
            process = self.events[n].process
            missing = [
                other
                for message, other in self.sends.items()
                if process in (self.events[other].to or ())
                and not any(self._message(k) == message and self.events[k].process == process for k in self.first if k < n)
                and self.before[other][sent]
                and (not same_sender or self.events[other].process == self.events[sent].process)
            ]
            if missing:
                minimal = [m for m in missing if not any(self.before[k][m] for k in missing)]
                earlier = min(minimal)  # events are in the order of (process, index)
                chain = self.chain(earlier, sent)
                yield process, self.events[n].index, self._message(n), self._message(earlier), len(missing), chain

    def _reaches(self, a: int, b: int) -> int | None:
        """The event at the sender of b by which a reached it before b was sent; both are sends."""
        here = [k for k in self.deliveries if k not in self.backward and self._message(k) == self._message(a)]
        here = [k for k in [a, *here] if self.events[k].process == self.events[b].process and k < b]
        return min(here, default=None)

    def chain(self, earlier: int, later: int) -> tuple[str, ...]:
        """The shortest chain; going back from the end, always through the message that arrived first."""
        sends = sorted(self.sends.values())
        level, distance = {earlier: 0}, 0
        while later not in level:
            fresh = [b for b in sends if b not in level and any(self._reaches(a, b) is not None for a in level)]
            distance += 1
            level.update(dict.fromkeys(fresh, distance))
        chain = [later]
        while chain[-1] != earlier:
            after = chain[-1]
            candidates = [a for a in sends if level.get(a) == level[after] - 1 and self._reaches(a, after) is not None]
            chain.append(min(candidates, key=lambda a: self._reaches(a, after) or 0))
        return tuple(self._message(n) for n in reversed(chain))

    def total(self) -> Iterator[_Row]:
        names = sorted({event.process for event in self.events})
        orders = {name: [self._message(n) for n in self.first if self.events[n].process == name] for name in names}
        for two in names:
            for one in names[: names.index(two)]:
                place = {message: n for n, message in enumerate(orders[two])}
                common = [message for message in orders[one] if message in place]
                pairs = [(j, i) for j in range(len(common)) for i in range(j) if place[common[i]] > place[common[j]]]
                if pairs:
                    j, i = min(pairs)
                    at = [n for n in self.first if self.events[n].process == one and self._message(n) == common[j]]
                    yield f"{one},{two}", self.events[at[0]].index, common[j], common[i], 0, ()

    def agreement(self) -> Iterator[_Row]:
        delivered = {self._message(n) for n in self.first}
        return (row for row in self.completeness() if row[2] in delivered)

    def completeness(self) -> Iterator[_Row]:
        for message, sent in self.sends.items():
            for process in set(self.events[sent].to or ()):
                kinds = [event.kind for event in self.events if event.process == process]
                gone = "crash" in kinds and "recover" not in kinds[_last(kinds, "crash") :]
                gone |= "leave" in kinds and "join" not in kinds[_last(kinds, "leave") :]
                had = any(self._message(n) == message and self.events[n].process == process for n in self.first)
                if not had and not gone:
                    yield process, None, message, None, 1, ()


def _last(kinds: list[str], kind: str) -> int:
    return max(n for n, found in enumerate(kinds) if found == kind)
