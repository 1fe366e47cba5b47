"""How a mistake is planted, and how the cited test is run with it.

Rules:

* The cited test is called as it is written, with arguments that keep it short. Fixtures and draws of hypothesis are arguments
  like others.
* The same call has to pass without the mistake. With it, an assertion of the test, or of a helper in ``tests`` that it calls, has
  to fail. An error of another kind says that the mistake itself is broken; where the code refuses what the mistake does,
  ``refusal`` says with which error.
* Whatever a module of tests remembers with ``functools.cache`` is forgotten before and after.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from traceback import extract_tb
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from thence.core import ordering as known
from thence.core.ordering import Ordering

TESTS: Final = Path(__file__).resolve().parents[2]
PLANTS: Final = (Path(__file__).resolve().parent, TESTS / "support" / "planted")
PATIENCE_S: Final = 30.0
"""How long an async test may take: a mistake may keep from happening what it waits for."""

Cited = Callable[..., Any]


class Mistake(NamedTuple):
    """A mistake in the code, and the cited test that must find it."""

    claim: str
    what: str
    """What is done wrong, in a few words."""
    plant: Callable[[], AbstractContextManager[Any]]
    """Makes everybody do it, inside of the block."""
    cited: Cited
    case: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = MappingProxyType({})
    """Arguments that keep the test short; a function is called with the mistake in place."""
    refusal: type[Exception] | None = None
    """The error with which the code refuses what the mistake does."""


def instead(where: Any, name: str, mistake: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Return what plants ``mistake`` in the place of an attribute."""
    return lambda: mock.patch.object(where, name, mistake)


def ordering(name: str, mistake: type[Ordering]) -> Callable[[], AbstractContextManager[Any]]:
    """Return what plants an ordering in the place of the one that is called so."""
    return instead(known, "ORDERINGS", {**known.ORDERINGS, name: mistake})


def arguments(cited: Cited) -> list[str]:
    """Return what a test has to be called with."""
    return list(inspect.signature(plain(cited)).parameters)


def plain(cited: Cited) -> Cited:
    """Return a test without what draws its arguments."""
    drawn = getattr(cited, "hypothesis", None)
    test: Cited = cited if drawn is None else drawn.inner_test
    return test


def call(mistake: Mistake, fixture: Callable[[str], Any]) -> None:
    """Call the cited test; what the case does not give is a fixture."""
    test = plain(mistake.cited)
    case = mistake.case() if callable(mistake.case) else mistake.case
    given = {name: case[name] if name in case else fixture(name) for name in arguments(test)}
    forget(test)
    try:
        if inspect.iscoroutinefunction(test):
            asyncio.run(asyncio.wait_for(test(**given), PATIENCE_S))
        else:
            test(**given)
    finally:
        forget(test)


def forget(test: Cited) -> None:
    """Forget what the module of a test remembers."""
    for value in list(getattr(test, "__globals__", {}).values()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def is_found(mistake: Mistake, error: BaseException) -> bool:
    """Return whether a test failed because it found what is wrong, and not because the mistake is written badly."""
    if isinstance(error, pytest.fail.Exception):  # An expected error did not come.
        return True
    if mistake.refusal is not None:
        return isinstance(error, mistake.refusal)
    where = Path(extract_tb(error.__traceback__)[-1].filename).resolve()
    ours = where.is_relative_to(TESTS) and not any(where.is_relative_to(folder) for folder in PLANTS)
    return isinstance(error, AssertionError) and ours
