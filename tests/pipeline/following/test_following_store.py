"""What following keeps: a step is there or it is not, and its rows are published once, however often."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.pipeline.followed import table_of
from tests.support.traces import parse
from thence.errors import ConfigError, StorageError
from thence.pipeline.streaming import store as storing
from thence.pipeline.streaming.follower import Follower
from thence.pipeline.streaming.store import FollowState, FollowStore, StepLag


def stepped(state: FollowState, text: str) -> FollowState:
    """One step more."""
    state.rows = state.follower.take(table_of(parse(text)), 0) + state.follower.finish()
    state.step += 1
    state.steps.append(StepLag(state.step, 1_000_000, state.follower.lag(0), 0.5))
    return state


@pytest.fixture
def saved(tmp_path: Path) -> FollowStore:
    store = FollowStore(tmp_path / "checkpoint", tmp_path / "out")
    assert store.load() is None
    state = FollowState("trace", Follower())
    for index in range(4):
        store.save(stepped(state, f"A@{index} deliver ghost{index}"))
    return store


def states(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "checkpoint" / "state").iterdir())


def test_the_last_two_states_are_kept_and_the_last_is_read(saved: FollowStore, tmp_path: Path) -> None:
    assert [file.stem for file in states(tmp_path)] == ["000000000002", "000000000003"]
    state = saved.load()
    assert state is not None
    assert (state.step, [row.later for row in state.rows]) == (3, ["ghost3"])


def test_each_step_has_its_rows_and_publishing_again_changes_nothing(saved: FollowStore, tmp_path: Path) -> None:
    before = pq.read_table(tmp_path / "out" / "violations")
    assert before["later"].to_pylist() == [f"ghost{index}" for index in range(4)]
    assert set(before["property"].to_pylist()) == {"creation"}
    state = saved.load()
    assert state is not None
    saved.publish(state)
    assert pq.read_table(tmp_path / "out" / "violations").equals(before)
    lag = pq.read_table(tmp_path / "out" / "lag.parquet").to_pylist()
    assert [(row["step"], row["events"], row["violations"]) for row in lag] == [(0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4)]


def test_a_torn_state_is_passed_over(saved: FollowStore, tmp_path: Path) -> None:
    *_, last = states(tmp_path)
    last.write_bytes(last.read_bytes()[:100])
    state = saved.load()
    assert state is not None
    assert state.step == 2
    for file in states(tmp_path):
        file.write_bytes(b"")
    with pytest.raises(StorageError, match="none of the states"):
        saved.load()


def test_a_state_of_another_version_is_refused(saved: FollowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "FORMAT", storing.FORMAT + 1)
    with pytest.raises(StorageError, match="another version"):
        saved.load()


@pytest.mark.parametrize("name", [b"thence.pipeline.following.store\nState", b"thence.pipeline.streaming.store\nGone"])
def test_a_state_whose_classes_had_other_names_is_refused(name: bytes, saved: FollowStore, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "state" / "999999999999.pickle").write_bytes(b"c" + name + b"\n.")
    with pytest.raises(StorageError, match="another version"):
        saved.load()


def test_tables_of_another_following_are_not_mixed_up(saved: FollowStore, tmp_path: Path) -> None:
    assert saved.out is not None
    with pytest.raises(ConfigError, match="another following"):
        FollowStore(tmp_path / "other", saved.out).load()


def test_the_table_of_lag_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "MAX_LAG_ROWS", 3)
    store, state = FollowStore(tmp_path / "checkpoint", tmp_path / "out"), FollowState("trace", Follower())
    for index in range(5):
        store.save(stepped(state, f"A@{index} note"))
    assert pq.read_table(tmp_path / "out" / "lag.parquet")["step"].to_pylist() == [2, 3, 4]
    assert not (tmp_path / "out" / "violations").exists()
