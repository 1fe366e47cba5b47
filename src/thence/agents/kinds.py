"""The classes of agents that a server knows: named on its command line, imported when it starts, and checked then.

``MODULE`` means every agent class that the module defines, ``MODULE:CLASS`` one of them. The folder in which the server is
started is looked into, too. An agent's kind is the name of its class; two classes of one name cannot be told apart, so that is
refused.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_origin, get_type_hints

import msgspec

from thence.agents.agent import Agent
from thence.client.values import decode_value
from thence.core.wire.messages import UNREADABLE
from thence.errors import ConfigError, StorageError, UsageError


class Kind:
    """One class of agents, and how the states of its agents are written and read."""

    def __init__(self, agent_class: type[Agent]) -> None:
        """Look at what the class says of its state."""
        self.name = agent_class.__name__
        self.agent_class = agent_class
        if agent_class.react is Agent.react or not inspect.iscoroutinefunction(agent_class.react):
            raise ConfigError(f"agent class {self.name}: it needs 'async def react(self, message)'")
        if not inspect.iscoroutinefunction(agent_class.returned):
            raise ConfigError(f"agent class {self.name}: 'returned' must be 'async def returned(self, message, to)'")
        try:
            self._type: Any = get_type_hints(agent_class).get("state", Any)
            self._decoder = msgspec.msgpack.Decoder(self._type)
        except (NameError, TypeError, ValueError) as error:
            raise ConfigError(f"agent class {self.name}: its state cannot be kept: {error}") from None

    def first_state(self, given: bytes) -> bytes:
        """Return what an agent begins with: what is given, checked, or else what its type makes of nothing."""
        try:
            state = decode_value(given, self._type) if given else self._nothing()
        except (*UNREADABLE, TypeError) as error:
            how = "what is given for its state" if given else "it needs a state to begin with, and that"
            raise UsageError(f"an agent of class {self.name}: {how} is no {_named(self._type)}: {error}") from None
        return self.write(state)

    def _nothing(self) -> Any:
        if self._type is Any or self._type is NoneType:
            return None
        made = get_origin(self._type) or self._type
        return made()

    def read(self, state: bytes, agent: str) -> Any:
        """Return a state that was stored."""
        try:
            return self._decoder.decode(state)
        except UNREADABLE as error:
            raise StorageError(
                f"the state of {agent!r} is no {_named(self._type)}, as class {self.name} has it: {error}"
            ) from None

    def write(self, state: Any) -> bytes:
        """Return a state as it is stored."""
        return _encoder.encode(state)


_encoder = msgspec.msgpack.Encoder()


def kinds_of(classes: Iterable[type[Agent]]) -> dict[str, Kind]:
    """Return classes by their names."""
    kinds: dict[str, Kind] = {}
    for agent_class in classes:
        kind = Kind(agent_class)
        if kind.name in kinds and kinds[kind.name].agent_class is not agent_class:
            raise ConfigError(f"two agent classes are called {kind.name}")
        kinds[kind.name] = kind
    return kinds


def load(places: Iterable[str]) -> dict[str, Kind]:
    """Import the classes that are named, as ``MODULE`` or ``MODULE:CLASS``."""
    return kinds_of([agent_class for place in places for agent_class in _classes_at(place)])


def _classes_at(place: str) -> list[type[Agent]]:
    module_name, _, class_name = place.partition(":")
    here = os.getcwd()  # noqa: PTH109  It is text that the search path holds.
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"--agents {place}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Agent) and value.__module__ == module.__name__
    ]
    if class_name:
        found = [agent_class for agent_class in found if agent_class.__name__ == class_name]
    able = [agent_class for agent_class in found if not inspect.isabstract(agent_class)]
    if not found:
        raise ConfigError(f"--agents {place}: there is no class derived from thence.Agent")
    if not able:
        raise ConfigError(f"--agents {place}: {_named(found[0])} does not say how to react")
    return able


def _named(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
