"""Keys become lines: what is typed, taken back, and left out."""

from __future__ import annotations

import pytest

from thence.cli.messages.prompt import MAX_LINE_CHARACTERS, Typing


@pytest.mark.parametrize(
    ("keys", "lines", "left"),
    [
        ("hello\rthere\nhalf", ["hello", "there"], "half"),
        ("helo\x7flo\x08o\r", ["hello"], ""),
        ("\x7f\x7fa\r", ["a"], ""),
        ("all gone\x15new\r", ["new"], ""),
        ("one two  \x17three\r", ["one three"], ""),
        ("one\x17two\r", ["two"], ""),
        ("a\x1b[Ab\x1b[1;5Cc\x1bOPd\x1bxe\r", ["abcde"], ""),
        ("grüße 茶\t\x00\r", ["grüße 茶"], ""),
        ("\x04", [None], ""),
        ("a\x04b\r", ["ab"], ""),
    ],
)
def test_keys_become_lines(keys: str, lines: list[str | None], left: str) -> None:
    whole = Typing()
    assert list(whole.press(keys)) == lines
    assert whole.text == left
    singly = Typing()
    assert [line for key in keys for line in singly.press(key)] == lines, "it does not matter which keys are read together"
    assert singly.text == left


def test_a_line_that_is_too_long_takes_no_more() -> None:
    typing = Typing()
    assert list(typing.press("x" * (MAX_LINE_CHARACTERS + 10) + "\x7fy\r")) == ["x" * (MAX_LINE_CHARACTERS - 1) + "y"]
