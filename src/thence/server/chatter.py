"""What a client says that moves nothing, such as pings and what it may not do: it may say some of that, and then it is slowed.

Whatever is short to say costs a server more than whoever says it. Messages pay for themselves: they are served in turn
(``node.sessions.fair_turns``). So do questions (``server.admission``). Everything else is chatter, and counted here.

Rules:

* A client has ``BURST_POINTS``, and gets ``POINTS_PER_S``: under a name, also if it connects anew; all who have no name at one
  place are one. What moves nothing at all, and what is refused, costs ``IDLE_POINTS``; to look for a name costs
  ``LOOKUP_POINTS``. To follow and leave topics has a limit of its own (``server.churn``).
* Accounts of those who have all their points back are forgotten, and of more than ``MAX_ACCOUNTS`` the oldest.
* Without points its connection is not read for ``SLOWED_S``, what was read of it waits, and the log names it. Nothing is lost.
* A client that sends messages which are taken, acknowledges what it got and follows topics pays nothing, however fast it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from thence.net.framing import Connection

BURST_POINTS: Final = 4_000
POINTS_PER_S: Final = 1_000
IDLE_POINTS: Final = 20
LOOKUP_POINTS: Final = 4
SLOWED_S: Final = 0.1
MAX_ACCOUNTS: Final = 10_000
"""How many accounts are kept."""

WHY: Final = "chatter"


class ChatterAccounts:
    """The points of all clients of one server that do not have all of them."""

    def __init__(self) -> None:
        """All have all of them."""
        self._loop = asyncio.get_running_loop()
        self.missing: dict[str, tuple[float, float]] = {}
        """How many points each lacked, and when, the one that spent something last behind all others."""

    def spend(self, whose: str, points: int) -> float:
        """Take points from an account; return how many are left. There may be less than none."""
        now, accounts = self._loop.time(), self.missing
        missing = self._lacks(whose, now) + points
        accounts.pop(whose, None)
        accounts[whose] = missing, now
        while (first := next(iter(accounts))) != whose and (len(accounts) > MAX_ACCOUNTS or not self._lacks(first, now)):
            del accounts[first]
        return BURST_POINTS - missing

    def _lacks(self, whose: str, now: float) -> float:
        missing, at = self.missing.get(whose, (0.0, now))
        return max(0.0, missing - (now - at) * POINTS_PER_S)


class Chatter:
    """What one connection may still say of this."""

    def __init__(
        self,
        accounts: ChatterAccounts,
        whose: str,
        connection: Connection,
        complain: Callable[[str], None],
        on_slowed: Callable[[bool], None],
    ) -> None:
        """``complain`` writes into the log what the client does; ``on_slowed`` is told when it is slowed, and when no longer."""
        self._accounts = accounts
        self._whose = whose
        self._connection = connection
        self._complain = complain
        self._on_slowed = on_slowed
        self._loop = asyncio.get_running_loop()
        self._slowed = False
        self.free = False
        """Whether nothing costs anything now: the client is told what is not the fault of its connection."""

    def spend(self, points: int) -> None:
        """Something was said that costs so much."""
        if self.free:
            return
        left = self._accounts.spend(self._whose, points)
        if left < 0 and not self._slowed:
            self._slowed = True
            self._complain(f"slowed: it says more that is refused or moves nothing than POINTS_PER_S ({POINTS_PER_S}) allows")
            self._connection.pause(WHY)
            self._on_slowed(True)
            self._loop.call_later(SLOWED_S - left / POINTS_PER_S, self._go_on)

    def _go_on(self) -> None:
        self._slowed = False
        self._on_slowed(False)
        self._connection.resume(WHY)
