"""Text from outside: nothing that a terminal obeys is left in it, and JSON says the same as before."""

from __future__ import annotations

import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.runtime import logs
from thence.runtime.printable import LINES, printable, printable_json

EVIL = "a\x1b[31m\x07\x9b2J\u202egnp\u2066\u200e\u2028\r\nb\x00\x7f\U000e0041\ud800c"


def commands(text: str) -> list[str]:
    """Return what in a text is no text to a terminal."""
    return [item for item in text if unicodedata.category(item) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


def test_everything_that_a_terminal_obeys_is_escaped() -> None:
    assert commands(printable(EVIL)) == []
    assert printable(EVIL).startswith(r"a\x1b[31m\x07\x9b2J\u202egnp")
    assert commands(printable(EVIL, keep=LINES)) == ["\n"]
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert commands(printable(everything)) == []
    assert set(printable(everything)) >= {item for item in everything if item.isprintable()}


def test_what_can_be_printed_stays_as_it_is() -> None:
    text = "Zoë: 你好, 🙂 [bold] \\x1b"
    assert printable(text) is text


@given(st.text())
def test_once_is_enough(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_says_the_same(value: object) -> None:
    for indent in (None, 2):
        written = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(written) == value
        assert set(commands(written)) <= {"\n"}


def test_a_log_line_is_one_line_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger("thence")
    before = (root.handlers[:], root.level, root.propagate)
    try:
        for form in ("text", "json"):
            logs.set_up("s1", form)
            logging.getLogger("thence.peers").warning("%s: %s", EVIL[:-2], "reason")
            line = capsys.readouterr().err
            assert commands(line) == ["\n"]
            assert line.endswith("\n")
    finally:
        root.handlers[:], root.level, root.propagate = before
