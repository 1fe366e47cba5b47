"""Messages that go on from us where a domain spans two sites. ``core.transport.lanes`` says to whom."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from thence.core.transport.ack_all_state import AckAllState, AckGroup, Drafts


class Onward:
    """Messages of others that go on from us to the rest of a site, or across to the other one."""

    def __init__(self, group: AckGroup, state: AckAllState[Any]) -> None:
        """Nothing goes on yet. Without lanes nothing ever does."""
        self._group = group
        self._state = state
        self.came_by: dict[tuple[int, int], int] = {}
        """From whom each message of this step came."""
        self.targets: dict[tuple[int, int], list[int]] = {}
        """To whom each message that was taken in this step goes."""

    def came(self, stream: int, number: int, source: int) -> None:
        """Note by whom a message came."""
        if self._group.lanes is not None:
            self.came_by[stream, number] = source

    def took(self, stream: int, number: int, suspected: Collection[int]) -> None:
        """Note that a message was taken, and find out to whom it goes on."""
        lanes, came_by = self._group.lanes, self.came_by.get((stream, number))
        if lanes is not None and came_by is not None:
            lanes.came_out(stream, number)
            self.targets[stream, number] = lanes.onward(stream, number, came_by, suspected)

    def hand_on(self, drafts: Drafts) -> None:
        """Send on what was taken in this step."""
        for (stream, number), targets in self.targets.items():
            lacking = [target for target in targets if number not in self._state.known_of(target, stream)]
            drafts.carry_all(lacking, stream, number, self._state.copies[stream].get(number))
        self.targets, self.came_by = {}, {}
