"""Whether an endpoint can be used: it is entered, fails or is closed, each once.

When an endpoint ends, everybody who waits gets the error. If nobody waits, the exception handler of the loop gets a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from thence.client.message import Message
from thence.errors import MalformedFrame, UsageError


class EndpointHooks(Protocol):
    """The methods of an endpoint that a program may replace. Its parts call them."""

    def refused(self, reason: str) -> None:
        """A posted message was refused."""

    def unreadable(self, error: MalformedFrame) -> None:
        """Messages could not be read and are left out."""

    def returned(self, message: Message, to: str) -> None:
        """A message of this endpoint came back."""


class EndpointState:
    """The state of one endpoint: not entered, usable, failed or closed."""

    def __init__(self, name: str) -> None:
        """Start before the block is entered."""
        self.name = name
        self.usable = False
        """Whether the endpoint was entered, has not failed and is not closed."""
        self.failure: Exception | None = None
        self.failure_seen = False
        """Whether the program got the failure."""
        self.closed = False
        self.on_end: list[Callable[[Exception], bool]] = []
        """Each part adds a function that wakes all who wait in it, with an error, and returns whether anybody waited."""
        self._report = asyncio.get_running_loop().call_exception_handler

    def enter(self) -> None:
        """Enter the block in which the endpoint is used."""
        if self.closed or self.usable:
            raise UsageError(f"{self.name!r} was used in a block already: make another one")
        self.usable = True

    def check_entered(self) -> None:
        """Raise if the block was not entered."""
        if not self.usable and self.failure is None and not self.closed:
            raise UsageError(f"{self.name!r} is not connected: use it in an 'async with' block")

    def check(self) -> None:
        """Raise if the endpoint cannot be used."""
        self.check_entered()
        if self.failure is not None:
            self.failure_seen = True
            raise self.failure
        if self.closed:
            raise UsageError(f"{self.name!r} is closed")

    def warn(self, text: str, error: Exception | None = None) -> None:
        """Give a warning to the exception handler of the loop."""
        self._report({"message": f"thence: {text}"} if error is None else {"message": f"thence: {text}", "exception": error})

    def handler_failed(self, error: BaseException) -> None:
        """End the endpoint because a handler of the program raised. What is to end the program goes on to."""
        failure = error if isinstance(error, Exception) else _failure_by(error, self.name)
        self.warn(f"a handler of {self.name!r} failed", failure)
        self.fail(failure, logged=True)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def call(self, hook: Callable[..., None], *arguments: object) -> None:
        """Call a method that the program may have replaced. If it raises, the endpoint ends, as for a handler."""
        try:
            hook(*arguments)
        except BaseException as error:  # noqa: BLE001  Otherwise the connection ends, and it is called again, over the next one.
            self.handler_failed(error)

    def fail(self, failure: Exception, *, logged: bool = False) -> None:
        """End the endpoint with an error, once. ``logged``: the exception handler of the loop has it already."""
        if self.failure is not None:
            return
        self.failure = failure
        self.usable = False
        if self._wake(failure):
            self.failure_seen = True
        elif not logged:
            self.warn(f"{self.name!r} has ended, and nobody waits for anything", failure)

    def close(self) -> None:
        """End the endpoint because the program wants it so."""
        self.closed = True
        self.usable = False
        self._wake(UsageError(f"{self.name!r} is closed"))

    def _wake(self, failure: Exception) -> bool:
        return True in [wake(failure) for wake in self.on_end]


def _failure_by(error: BaseException, name: str) -> UsageError:
    """Return what an endpoint ends with if a handler raised what ends tasks and programs."""
    failure = UsageError(f"a handler of {name!r} raised {type(error).__name__}; what it handled is not done")
    failure.__cause__ = error
    return failure
