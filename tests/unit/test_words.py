"""Numbers and kinds in texts for people: by one helper, and nowhere by hand where there may be one of something."""

from __future__ import annotations

import doctest

import pytest

from thence import words
from thence.client.message import Message, nobody
from thence.errors import MalformedFrame
from thence.net.protocol import BatchItem


def test_the_examples_hold() -> None:
    assert doctest.testmod(words) == (0, 3)


def test_a_kind_has_the_right_article() -> None:
    message = Message(nobody, 1, "ann", None, BatchItem(b"a"), b"a")
    with pytest.raises(MalformedFrame, match="wants to give an int sends one"):
        message.value(int)
