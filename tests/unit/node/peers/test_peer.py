"""The log has a line for each peer and reason, however many frames are refused."""

from __future__ import annotations

import logging

import pytest

from thence.core.epochs.epoch import MAX_EPOCH_ID_CHARACTERS, Claim, Epoch, Held
from thence.core.member.codec import limits_of
from thence.core.topology.toml import parse
from thence.errors import ImpossibleFrame, MalformedFrame, StrangerFrame
from thence.net.protocol import CONTROL_KIND, ServerWelcome, encode_value, understand
from thence.node.peers.peer import Peer, Refusals
from thence.runtime.offenders import MAX_LINE_CHARACTERS, REPEAT_EVERY_S


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


def test_trouble_has_a_bounded_length(caplog: pytest.LogCaptureFixture) -> None:
    """A captured server could put 30 KB of its own into a line, and into the status."""
    topology = parse('name = "flat"\n[domains.D]\nmembers = ["s1", "s2"]\n')
    peer = Peer("s2", None, called=True, written={}, limits=limits_of(topology))
    for _ in range(2):
        peer.note_trouble("A" * 30_000)
    assert peer.trouble == f"{'A' * MAX_LINE_CHARACTERS}… (30000 characters)"
    assert [record.getMessage() for record in caplog.records] == [f"s2: {peer.trouble}"]


def test_a_claim_with_a_long_id_is_refused_when_it_is_read() -> None:
    for length in (MAX_EPOCH_ID_CHARACTERS, MAX_EPOCH_ID_CHARACTERS + 1):
        epoch = Epoch(1, "A" * length)
        claims = [Claim(Held(epoch)), Claim(Held(Epoch()), Held(epoch)), Claim(Held(Epoch()), None, (Held(epoch),))]
        for claim in claims:
            said = memoryview(CONTROL_KIND + encode_value(ServerWelcome("s2", "a store", claim=claim)))
            if length == MAX_EPOCH_ID_CHARACTERS:
                assert isinstance(understand(said, "s2"), ServerWelcome)
            else:
                with pytest.raises(MalformedFrame, match="length <= 64"):
                    understand(said, "s2")
