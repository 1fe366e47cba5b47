"""What a program takes from a server that it calls."""

from __future__ import annotations

import msgspec
import pytest

from thence.client.resume import Resumption
from thence.net.protocol import MAX_NUMBER, ClientWelcome


@pytest.mark.parametrize("number", [-(2**63), -1, MAX_NUMBER + 1, 2**64 - 1])
@pytest.mark.parametrize("field", ["number", "accepted", "position"])
def test_numbers_that_cannot_be_are_no_reason_to_go_on(field: str, number: int) -> None:
    welcome = msgspec.structs.replace(ClientWelcome("s1", "fabric", 0, 0, 0), **{field: number})
    said = Resumption().objection(welcome, "ann", 0, 0)
    assert said.startswith("'s1' says that 'ann' has sent")
    assert "which cannot be" in said


def test_a_server_that_has_seen_the_name_before_is_gone_on_with() -> None:
    assert Resumption().objection(ClientWelcome("s1", "fabric", 7, 7, 3), "ann", 0, 0) == ""
