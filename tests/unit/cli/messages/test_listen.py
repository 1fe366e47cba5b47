"""What ``thence listen`` prints of a message, and of its connection."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from thence.cli.messages import listen
from thence.cli.messages.listen import print_message, tell_of_trouble
from thence.client.message import Message, nobody
from thence.net.protocol import BatchItem, encode_value


class Order(msgspec.Struct):
    item: str
    count: int


def message(value: Any) -> Message:
    body = value if isinstance(value, bytes) else encode_value(value)
    return Message(nobody, 1, "ann", None, BatchItem(body, coded=not isinstance(value, bytes)), body)


@pytest.mark.parametrize(
    ("value", "shown", "as_json"),
    [
        (b"text from a shell", "text from a shell", '"text from a shell"'),
        ("text", "text", '"text"'),
        (Order("tea", 2), '{"item": "tea", "count": 2}', '{"item": "tea", "count": 2}'),
        ({1: b"\x00"}, '{"1": "AA=="}', '{"1": "AA=="}'),
        (b"\xff", "\N{REPLACEMENT CHARACTER}", '"\N{REPLACEMENT CHARACTER}"'),
    ],
)
def test_a_body_is_printed_as_it_was_sent(value: Any, shown: str, as_json: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_message(message(value), json=True)
    assert capsys.readouterr().out == f'{{"sender": "ann", "topic": null, "headers": {{}}, "body": {as_json}}}\n'
    print_message(message(value), json=False)
    assert capsys.readouterr().out == f"ann: {shown}\n"


@pytest.mark.parametrize("depth", [100, 900, 990, 10_000, 1_000_000])
@pytest.mark.parametrize("json", [True, False])
def test_a_body_however_deep_is_printed_in_some_way(depth: int, json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """It ended the command at every start, since the message came again each time."""
    body = b"\x91" * depth + b"\xc0"
    print_message(Message(nobody, 1, "mallory", None, BatchItem(body, coded=True), body), json=json)
    assert "mallory" in capsys.readouterr().out


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": -float("inf")}])
def test_a_line_is_json_whatever_the_numbers_are(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Python writes NaN and Infinity, which no other reader of JSON takes."""
    print_message(message(value), json=True)
    printed = msgspec.json.decode(capsys.readouterr().out)
    assert printed["sender"] == "ann"
    assert isinstance(printed["body"], str)


async def test_a_connection_that_is_lost_and_found_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = ["", "", "connection refused", "no answer", "", ""]

    class Looked:
        server = "s1"

        @property
        def trouble(self) -> str:
            if not states:
                raise asyncio.CancelledError
            return states.pop(0)

    monkeypatch.setattr(listen, "LOOK_EVERY_S", 0)
    with pytest.raises(asyncio.CancelledError):
        await tell_of_trouble(Looked())  # type: ignore[arg-type]
    told = capsys.readouterr().err.splitlines()
    assert told == ["the connection is lost (connection refused); trying again", "connected again, to s1"]
