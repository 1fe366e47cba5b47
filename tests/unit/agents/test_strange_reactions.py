"""Agents whose reactions raise what ends programs: their messages are set aside, and the server goes on."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.unit.agents.test_engine import Home, until
from thence.agents import engine as engine_module
from thence.agents import guard


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_RETRY_S", 0.0)


class Silent(Exception):
    """An error that does not say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("nothing")


STRANGE = {
    "half": (ValueError("half a \udcff character"), r"ValueError: half a \udcff character"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "group": (BaseExceptionGroup("some", [SystemExit(3)]), "BaseExceptionGroup: some (1 sub-exception)"),
    "interrupt": (KeyboardInterrupt(), "KeyboardInterrupt: "),
    "closed": (GeneratorExit(), "GeneratorExit: "),
    "both": (BaseExceptionGroup("some", [KeyboardInterrupt()]), "BaseExceptionGroup: some (1 sub-exception)"),
    "silent": (Silent(), "Silent: what it says cannot be made a text"),
    "long": (KeyError("x" * 1_000_000), "KeyError: 'xxx"),
}


class Strange(thence.Agent):
    """Fails as its messages say."""

    state: list[str]

    async def react(self, message: thence.Message) -> None:
        text = message.value(str)
        if text in STRANGE:
            raise STRANGE[text][0]
        if text.startswith("later "):
            await asyncio.wait_for(self._fail(text.removeprefix("later ")), 60)
        self.state.append(text)

    async def _fail(self, text: str) -> None:
        await asyncio.sleep(0)
        raise STRANGE[text][0]


@pytest.fixture(autouse=True)
def _unsent_log() -> Iterator[None]:
    """What strange errors say has half characters, which a worker of pytest cannot send with its report."""
    log = logging.getLogger("thence.engine")
    log.addFilter(_nothing)
    yield
    log.removeFilter(_nothing)


def _nothing(_: logging.LogRecord) -> bool:
    return False


@pytest.fixture
async def _handled() -> AsyncIterator[None]:
    """SIGINT is handled by the loop, as in ``thence serve``: only agents raise ``KeyboardInterrupt``."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    yield
    loop.remove_signal_handler(signal.SIGINT)


@pytest.mark.usefixtures("_handled")
async def test_whatever_a_reaction_raises_its_message_is_set_aside_and_the_server_goes_on(tmp_path: Path) -> None:
    one = Home(tmp_path, (Strange,))
    await one.make("ann", kind="Strange")
    one.send("ann", *STRANGE, "fine")
    await until(lambda: one.state("ann") == ["fine"])
    await one.rest()
    said = [dead.error for dead in one.node.ledger.dead_letters()]
    assert [text.startswith(wanted) for text, (_, wanted) in zip(said, STRANGE.values(), strict=True)] == [True] * len(STRANGE), (
        said
    )
    await one.kill()
    again = Home(tmp_path, (Strange,))
    assert [dead.error for dead in again.node.ledger.dead_letters()] == said
    await again.engine.close()
    await again.node.close()


@pytest.mark.usefixtures("_handled")
@pytest.mark.parametrize("text", ["exit", "interrupt", "group", "half"])
async def test_whatever_a_task_of_a_reaction_raises_the_server_goes_on(text: str) -> None:
    one = Home(None, (Strange,))
    await one.make("ann", kind="Strange")
    one.send("ann", f"later {text}", "fine")
    await until(lambda: one.state("ann") == ["fine"])
    await one.rest()
    (dead,) = one.node.ledger.dead_letters()
    name = type(STRANGE[text][0]).__name__
    assert dead.error.startswith(f"RuntimeError: a task of a reaction raised {name}" if name in ENDING else f"{name}: ")
    await one.kill()


ENDING = {"SystemExit", "KeyboardInterrupt"}
"""What ``asyncio`` lets out of a loop, from any task."""


@pytest.mark.parametrize("handler", [signal.default_int_handler, functools.partial(print)])
async def test_an_interrupt_that_may_come_from_the_keyboard_is_no_fault_of_an_agent(
    handler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: handler)
    assert guard.is_of_others(KeyboardInterrupt(), None)
    assert not guard.is_of_others(SystemExit(), None)


async def test_a_reaction_that_is_closed_with_its_loop_ends() -> None:
    async def waits() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(waits())
    assert guard.is_of_others(GeneratorExit(), task)
    assert not guard.is_of_others(GeneratorExit(), asyncio.current_task())
    task.cancel()
