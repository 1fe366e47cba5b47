"""What a server keeps of its agents follows from notices and records, in order, and comes back from a snapshot."""

from __future__ import annotations

import pytest

from thence.errors import Busy, StorageError, UsageError
from thence.storage import agents as ledger_module
from thence.storage.agents import AgentLedger, Dead, DeadLettered, Reacted
from thence.storage.bodies import Joined
from thence.storage.mailbox import Batch


def with_agent(name: str = "ann", since: int = 1, state: bytes = b"first") -> AgentLedger:
    """Return a ledger with one agent."""
    ledger = AgentLedger()
    ledger.made(Joined(name, "s1", temporary=False, kind="Counter", state=state), since)
    return ledger


def dead(number: int, agent: str = "ann", messages: bytes = b"letter") -> Dead:
    return Dead(number, agent, Batch("bob", 1, 1, (agent,), None, messages), "ValueError: no", 5, 0)


def test_a_reaction_changes_state_and_position_together() -> None:
    ledger = with_agent()
    assert ledger.reacted(Reacted("ann", 1, 3, b"second"))
    assert ledger.reacted(Reacted("ann", 1, 4, None))
    kept = ledger.agents["ann"]
    assert (kept.state, kept.done, ledger.states_bytes) == (b"second", 4, 6)


def test_what_the_one_before_did_changes_nothing_for_who_has_the_name_now() -> None:
    ledger = with_agent()
    ledger.forget("ann")
    ledger.made(Joined("ann", "s1", temporary=False, kind="Counter", state=b"new"), 7)
    assert not ledger.reacted(Reacted("ann", 1, 3, b"old", dead(1)))
    assert (ledger.agents["ann"].state, ledger.agents["ann"].done, list(ledger.dead_letters())) == (b"new", 0, [])
    with pytest.raises(UsageError, match="no agent here any more"):
        ledger.check(Reacted("ann", 1, 3, None))


def test_an_agent_takes_its_dead_messages_with_it() -> None:
    ledger = with_agent()
    ledger.made(Joined("bob", "s1", temporary=False, kind="Counter", state=b""), 2)
    ledger.reacted(Reacted("ann", 1, 1, None, dead(1)))
    ledger.reacted(Reacted("bob", 2, 1, None, dead(2, "bob")))
    ledger.forget("ann")
    assert [one.number for one in ledger.dead_letters()] == [2]
    assert (ledger.states_bytes, ledger.dead_bytes) == (0, 6)


def test_a_dead_message_is_there_until_it_is_buried_and_its_number_is_never_used_again() -> None:
    ledger = with_agent()
    ledger.reacted(Reacted("ann", 1, 1, None, dead(1)))
    assert ledger.dead_letter(1).error == "ValueError: no"
    ledger.on_dead_lettered(DeadLettered(1))
    with pytest.raises(UsageError, match="no dead message 1"):
        ledger.dead_letter(1)
    assert (ledger.state.last_dead, ledger.dead_bytes) == (1, 0)


@pytest.mark.parametrize(
    ("limit", "value", "reacted", "error"),
    [
        ("MAX_STATE_BYTES", 3, Reacted("ann", 1, 1, b"four"), UsageError),
        ("MAX_STATES_BYTES", 8, Reacted("ann", 1, 1, b"nine char"), UsageError),
        ("MAX_DEAD_MESSAGES", 0, Reacted("ann", 1, 1, None, dead(1)), Busy),
        ("MAX_DEAD_BYTES", 5, Reacted("ann", 1, 1, None, dead(1)), Busy),
    ],
)
def test_limits_are_named(
    limit: str, value: int, reacted: Reacted, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = with_agent()
    ledger.check(reacted)
    monkeypatch.setattr(ledger_module, limit, value)
    with pytest.raises(error, match=limit):
        ledger.check(reacted)


def test_a_state_may_become_smaller_where_all_together_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = with_agent()
    monkeypatch.setattr(ledger_module, "MAX_STATES_BYTES", 1)
    ledger.check(Reacted("ann", 1, 1, b"tiny"))
    with pytest.raises(UsageError, match="MAX_STATES_BYTES"):
        ledger.check(Reacted("ann", 1, 1, b"larger"))


def test_a_snapshot_brings_everything_back() -> None:
    ledger = with_agent()
    ledger.reacted(Reacted("ann", 1, 3, b"second", dead(4)))
    again = AgentLedger()
    again.restore(ledger.snapshot())
    assert again.state == ledger.state
    assert (again.states_bytes, again.dead_bytes) == (ledger.states_bytes, ledger.dead_bytes)
    assert list(again.done()) == [("ann", 1, 3)]


def test_a_snapshot_from_before_there_were_agents_is_taken_and_a_broken_one_is_not() -> None:
    ledger = AgentLedger()
    ledger.restore(b"")
    assert ledger.agents == {}
    with pytest.raises(StorageError, match="snapshot of agents"):
        ledger.restore(b"\xc1")
