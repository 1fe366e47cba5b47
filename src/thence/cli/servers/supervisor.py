"""How ``thence up`` looks after its servers: one that ends by itself is started again, and the others go on meanwhile.

Rules:

* Every end is said, with how it came, and what follows from it.
* A server is started again after ``FIRST_PAUSE_S``, and after twice as long each time that it ends within ``QUICK_S`` of its
  start. With ``MAX_QUICK_DEATHS`` of these in a row it stays down: what ends it will not go away by itself.
* A server that ends with exit code 0 was told to stop by somebody, and stays down.
* A server that keeps nothing on disk stays down where it has peers: they would refuse one that has forgotten everything.
* Starting is done by whoever calls ``run``: a server stops with the thread that started it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from thence.cli import console

FIRST_PAUSE_S: Final = 0.5
QUICK_S: Final = 10.0
MAX_QUICK_DEATHS: Final = 4
LOOK_EVERY_S: Final = 0.2

EXIT_RESTARTED: Final = 1
EXIT_DOWN: Final = 2


class Servers(Protocol):
    """The processes to look after."""

    def start_one(self, name: str) -> None:
        """Start a server."""

    def exit_code(self, name: str) -> int | None:
        """Return how the server has ended; None: it runs."""


class Supervisor:
    """Starts servers again that end by themselves."""

    def __init__(
        self,
        servers: Servers,
        names: Iterable[str],
        *,
        forgetful: bool = False,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = console.error,
    ) -> None:
        """Look after servers that have just been started. ``forgetful``: they keep nothing on disk."""
        self._servers = servers
        self._clock, self._say = clock, say
        self._started_at = dict.fromkeys(names, clock())
        self._forgetful = forgetful and len(self._started_at) > 1
        self._quick_deaths = dict.fromkeys(self._started_at, 0)
        self._start_at: dict[str, float] = {}
        """When those are to be started that have ended."""
        self._stopped: set[str] = set()
        self._failed: set[str] = set()
        """Who stays down: since it was told to stop, or since it cannot go on."""
        self._restarted = False

    @property
    def exit_code(self) -> int:
        """What to tell whoever started all of them."""
        if self._failed:
            return EXIT_DOWN
        return EXIT_RESTARTED if self._restarted else 0

    def run(self) -> None:
        """Look after them until none is left to look after."""
        while self.look():
            time.sleep(LOOK_EVERY_S)

    def look(self) -> bool:
        """Do what there is to do now; return whether there still is a server."""
        now = self._clock()
        for name in self._started_at:
            if name in self._stopped or name in self._failed:
                continue
            if name in self._start_at:
                if now >= self._start_at[name]:
                    del self._start_at[name]
                    self._started_at[name] = now
                    self._servers.start_one(name)
            elif (code := self._servers.exit_code(name)) is not None:
                self._ended(name, code, now)
        return len(self._stopped) + len(self._failed) < len(self._started_at)

    def _ended(self, name: str, code: int, now: float) -> None:
        how = f"{name} {_how(code)}"
        if code == 0:
            self._stopped.add(name)
            self._say(f"{how}: it was told to stop, and stays down; the others go on")
            return
        if self._forgetful:
            self._failed.add(name)
            self._say(f"{how}. It kept nothing on disk, so its peers would refuse it: it stays down. Start all anew")
            return
        quick = now - self._started_at[name] < QUICK_S
        deaths = self._quick_deaths[name] = self._quick_deaths[name] + 1 if quick else 0
        if deaths >= MAX_QUICK_DEATHS:
            self._failed.add(name)
            self._say(
                f"{how}, for the {deaths}th time in a row within {QUICK_S:g} s of its start: it stays down, and the others "
                "go on. Its log says why. Stop this command and start it again when that is repaired"
            )
            return
        pause_s = FIRST_PAUSE_S * 2 ** max(0, deaths - 1)
        self._start_at[name] = now + pause_s
        self._restarted = True
        self._say(f"{how}: it is started again in {pause_s:g} s, and the others go on")


def _how(code: int) -> str:
    if code >= 0:
        return f"has ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
