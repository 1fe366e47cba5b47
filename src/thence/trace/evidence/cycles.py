"""Deliveries that lie causally before their own send, found as cycles in what the trace claims.

The order of events and the arrows from sends to deliveries should form a graph without cycles. Where they do not,
every arrow that lies on a cycle is a delivery causally before its own send, and an arrow lies on a cycle exactly if
both its ends are in the same strongly connected component. Components are found by Tarjan's algorithm, without
recursion. Which deliveries come out does not depend on where the search begins.
"""

from __future__ import annotations

from collections import defaultdict

from thence.trace.evidence.history import DELIVER, NOBODY, SEND, History


def backward_deliveries(history: History, start: list[int]) -> set[int]:
    """Return the deliveries on a cycle, among the events from ``start[p]`` on of each process p.

    ``start`` must leave out only events that lie on no cycle.
    """
    arrows = _arrows(history, start)
    component = _components(history, start, arrows)
    return {delivery for send, deliveries in arrows.items() for delivery in deliveries if component[delivery] == component[send]}


def _arrows(history: History, start: list[int]) -> dict[int, list[int]]:
    """From each send that is left to the deliveries of its message that are left."""
    arrows: dict[int, list[int]] = defaultdict(list)
    for process, begin in enumerate(start):
        for event in range(begin, history.first_event[process + 1]):
            if history.roles[event] >= DELIVER:
                send = history.sent_at[history.message_of[event]]
                if send != NOBODY and send >= start[history.process_of[send]]:
                    arrows[send].append(event)
    return arrows


def _components(history: History, start: list[int], arrows: dict[int, list[int]]) -> dict[int, int]:
    """Return the component of each event that is left, named by one of its events."""
    search = _Search(history, arrows)
    for process, begin in enumerate(start):
        for event in range(begin, history.first_event[process + 1]):
            if event not in search.low:
                search.visit(event)
    return search.component


class _Search:
    """Tarjan's search. ``low`` is both the order of discovery and the lowest order reachable so far."""

    def __init__(self, history: History, arrows: dict[int, list[int]]) -> None:
        self.low: dict[int, int] = {}
        self.component: dict[int, int] = {}
        self._history = history
        self._arrows = arrows
        self._found: dict[int, int] = {}
        self._open: list[int] = []

    def _successors(self, event: int) -> list[int]:
        history = self._history
        following = list(self._arrows.get(event, ())) if history.roles[event] == SEND else []
        if event + 1 < history.first_event[history.process_of[event] + 1]:
            following.append(event + 1)
        return following

    def _enter(self, event: int) -> list[int]:
        self._found[event] = self.low[event] = len(self._found)
        self._open.append(event)
        return self._successors(event)

    def visit(self, root: int) -> None:
        path = [(root, self._enter(root))]
        while path:
            event, following = path[-1]
            if following:
                target = following.pop()
                if target not in self.low:
                    path.append((target, self._enter(target)))
                elif target not in self.component:
                    self.low[event] = min(self.low[event], self._found[target])
                continue
            path.pop()
            if path:
                parent = path[-1][0]
                self.low[parent] = min(self.low[parent], self.low[event])
            if self.low[event] == self._found[event]:
                self._close(event)

    def _close(self, event: int) -> None:
        while True:
            member = self._open.pop()
            self.component[member] = event
            if member == event:
                return
