"""A leader and two followers that log as etcd's raft and CCF do for trace validation in TLA+, over a network that misbehaves.

The fields are those of these programs. The exchange is a small one of our own: requests to append, and answers. Planted: one
request overtakes another (fifo, and so causal), one arrives twice (there is no send left for it: creation), one never arrives
(completeness).
"""

from __future__ import annotations

from typing import Any, NamedTuple

LEADER, FOLLOWERS = 0, (1, 2)


class Step(NamedTuple):
    """Somebody sends or receives a request or its answer about an entry of the log."""

    at: int
    sends: bool
    peer: int
    entry: int
    answer: bool = False


def steps() -> list[Step]:
    """Return what happens, in order."""
    sent = [Step(LEADER, True, follower, entry) for entry in (1, 2) for follower in FOLLOWERS]
    overtaken = [Step(1, False, LEADER, entry) for entry in (2, 1)]
    twice = [Step(2, False, LEADER, entry) for entry in (1, 1, 2)]
    answered = [Step(1, True, LEADER, 2, answer=True), Step(LEADER, False, 1, 2, answer=True)]
    lost = [Step(LEADER, True, 1, 3), Step(LEADER, True, 2, 3), Step(2, False, LEADER, 3)]
    return [*sent, *overtaken, *twice, *answered, *lost]


def etcd_lines() -> list[dict[str, Any]]:
    """Return the steps as etcd's raft logs them, between events of a node alone and lines of other loggers."""
    lines: list[dict[str, Any]] = [{"level": "info", "msg": "raft.node: 1 elected leader"}]
    for number, step in enumerate(steps()):
        state = {"term": 2, "vote": "1", "commit": 0}
        event = {
            "nid": str(step.at + 1),
            "state": state,
            "role": "StateFollower",
            "log": step.entry,
            "conf": [["1", "2", "3"], []],
        }
        ends = {"from": step.at, "to": step.peer} if step.sends else {"from": step.peer, "to": step.at}
        message = {
            "type": "MsgAppResp" if step.answer else "MsgApp",
            "term": 2,
            **{name: str(node + 1) for name, node in ends.items()},
        }
        message |= {"entries": 0 if step.answer else 1, "logTerm": 2, "index": step.entry, "commit": 0, "vote": "0"}
        message |= {"reject": False, "rejectHint": 0}
        name = ("Send" if step.sends else "Receive") + "AppendEntries" + ("Response" if step.answer else "Request")
        beside = {"level": "debug", "ts": 1718271672.97 + number / 1000, "msg": "trace", "tag": "trace"}
        lines += [{**beside, "event": {"name": "Ready", **event}}, {**beside, "event": {"name": name, **event, "msg": message}}]
    return lines


def ccf_lines() -> list[dict[str, Any]]:
    """Return the steps as CCF logs them, with a vote that is logged where it arrives only, and the driver's commands."""
    lines: list[dict[str, Any]] = [{"tag": "raft_trace", "cmd": "start_node,0"}]
    vote = {
        "function": "recv_request_vote_response",
        "from_node_id": "1",
        "packet": {"msg": "raft_request_vote_response", "term": 2},
    }
    lines.append(_ccf(0, {**vote, "state": {"node_id": "0", "leadership_state": "Candidate"}}))
    for number, step in enumerate(steps(), 1):
        packet: dict[str, Any] = {"msg": "raft_append_entries", "term": 2, "idx": step.entry, "prev_idx": step.entry - 1}
        if step.answer:
            packet = {"msg": "raft_append_entries_response", "term": 2, "last_log_idx": step.entry, "success": "OK"}
        function = ("send" if step.sends else "recv") + "_append_entries" + ("_response" if step.answer else "")
        state = {"node_id": str(step.at), "current_view": 2, "leadership_state": "Follower"}
        peer = {"to_node_id" if step.sends else "from_node_id": str(step.peer)}
        lines.append(_ccf(number, {"function": function, "packet": packet, "state": state, **peer}))
        lines.append(_ccf(number, {"function": "commit", "args": {"idx": step.entry}, "state": state}))
    return lines


def _ccf(tick: int, message: dict[str, Any]) -> dict[str, Any]:
    beside = {"thread_id": "100", "level": "debug", "tag": "raft_trace", "file": "raft.h", "number": "681"}
    return {"h_ts": f"2026-01-01T00:00:{tick:02}.000001Z", **beside, "msg": message}
