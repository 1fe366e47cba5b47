"""Classes of agents: found by name, checked when a server starts, and what states they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from thence.agents.kinds import Kind, kinds_of, load
from thence.errors import ConfigError, StorageError, UsageError


class Told(msgspec.Struct):
    count: int = 0


@dataclass
class Needy:
    count: int


class Typed(thence.Agent):
    state: Told

    async def react(self, message: thence.Message) -> None:
        self.state.count += 1


class Listed(Typed):
    state: dict[str, int]  # type: ignore[assignment]


class Counted(Typed):
    state: int  # type: ignore[assignment]


class Demanding(Typed):
    state: Needy  # type: ignore[assignment]


class Stateless(thence.Agent):
    async def react(self, message: thence.Message) -> None:
        await self.send(message.sender, b"")


@pytest.mark.parametrize(("agent_class", "first"), [(Typed, {"count": 0}), (Listed, {}), (Counted, 0), (Stateless, None)])
def test_without_a_state_an_agent_begins_with_what_its_type_makes_of_nothing(agent_class: type[thence.Agent], first: Any) -> None:
    assert msgspec.msgpack.decode(Kind(agent_class).first_state(b"")) == first


def test_what_is_given_is_checked() -> None:
    kind = Kind(Typed)
    assert kind.read(kind.first_state(msgspec.msgpack.encode({"count": 3})), "ann") == Told(3)
    with pytest.raises(UsageError, match=r"Typed: what is given for its state is no Told: .*\$\.count"):
        kind.first_state(msgspec.msgpack.encode({"count": "three"}))
    with pytest.raises(UsageError, match="Demanding: it needs a state to begin with"):
        Kind(Demanding).first_state(b"")


def test_a_state_that_the_class_no_longer_has_is_named() -> None:
    with pytest.raises(StorageError, match="the state of 'ann' is no int, as class Counted has it"):
        Kind(Counted).read(msgspec.msgpack.encode("text"), "ann")


def test_a_class_that_cannot_be_an_agent_is_refused() -> None:
    class Silent(thence.Agent):
        pass

    class Blocking(thence.Agent):
        def react(self, message: thence.Message) -> None:  # type: ignore[override]
            pass

    class Odd(Typed):
        state: complex | thence.Agent  # type: ignore[assignment]

    for wrong in (Silent, Blocking):
        with pytest.raises(ConfigError, match=f"{wrong.__name__}: it needs 'async def react"):
            Kind(wrong)
    with pytest.raises(ConfigError, match="Odd: its state cannot be kept"):
        Kind(Odd)


def test_two_classes_of_one_name_are_refused() -> None:
    other = type("Typed", (Typed,), {})
    assert list(kinds_of([Typed, Typed])) == ["Typed"]
    with pytest.raises(ConfigError, match="two agent classes are called Typed"):
        kinds_of([Typed, other])


def test_classes_are_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "two_agents.py").write_text(
        "import thence\nclass One(thence.Agent):\n    async def react(self, message): ...\nclass Two(One):\n    state: int\n"
    )
    assert set(load(["two_agents"])) == {"One", "Two"}
    assert set(load(["two_agents:Two"])) == {"Two"}
    for place in ("two_agents:Three", "pathlib"):
        with pytest.raises(ConfigError, match=f"--agents {place}: there is no class derived from thence.Agent"):
            load([place])
    (tmp_path / "mute_agents.py").write_text("import thence\nclass Mute(thence.Agent):\n    state: int\n")
    with pytest.raises(ConfigError, match="--agents mute_agents: Mute does not say how to react"):
        load(["mute_agents"])
    with pytest.raises(ConfigError, match="--agents no_such_module: No module named"):
        load(["no_such_module"])
