"""The log has a line for each peer and reason, however many frames are refused."""

from __future__ import annotations

import logging

import pytest

from thence.errors import ImpossibleFrame, StrangerFrame
from thence.node.peers.peer import Refusals
from thence.runtime.offenders import REPEAT_EVERY_S


def test_each_peer_and_reason_has_one_line_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A captured server had 20 lines that were alike."""
    now = 0.0
    refusals = Refusals(lambda: now)
    with caplog.at_level(logging.INFO, "thence.node"):
        for number in range(100):
            for peer in ("s1", "s2"):
                refusals.note(peer, StrangerFrame(f"frame {number} is for nobody"))
            refusals.note("s2", ImpossibleFrame(f"frame {number} is forged"))
        assert [record.getMessage() for record in caplog.records] == [
            "s1: StrangerFrame (1 so far): frame 0 is for nobody",
            "s2: StrangerFrame (2 so far): frame 0 is for nobody",
            "s2: ImpossibleFrame (1 so far): frame 0 is forged",
        ]
        now = REPEAT_EVERY_S
        refusals.note("s1", StrangerFrame("frame 100 is for nobody"))
    assert caplog.records[-1].getMessage() == "s1: StrangerFrame (201 so far): frame 100 is for nobody"
    assert refusals.counts == {"StrangerFrame": 201, "ImpossibleFrame": 100}
