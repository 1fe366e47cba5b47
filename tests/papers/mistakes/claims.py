"""What the five papers claim, in a few words each, by the ids that the tests in ``tests/papers`` cite.

``test_claims.py`` asks of every row that a test cites it and that a planted mistake makes such a test fail.
"""

from __future__ import annotations

from typing import Final

CLAIMS: Final = {
    "I1": "FIFO systems joined by several relays, with any transfer sets, stay FIFO end to end; Fig. 3",
    "I2": "any number of FIFO systems; every sender has its own shape of paths; Fig. 4",
    "I3": "two uncoordinated relays per system break causal order",
    "I4": "a sequencer among the relays repairs it, and messages still travel in parallel",
    "I5": "any number of causal systems, as long as no cycle of links exists",
    "I6": "uniform delivery across systems, whichever relay dies",
    "I7": "bandwidth, transmission time and the best number of links",
    "I8": "message counts and hops against the daisy",
    "I9": "joining systems does not change the response time of a local broadcast",
    "I10": "FIFO links and transfer sets: the senders of a dead relay are taken over",
    "D1": "causal multicast to any subset; groups without recipients are not visited",
    "D2": "hyper-servers: any number of levels",
    "D3": "groups split, merge and take members while messages are sent; only who departs pauses",
    "D4": "a sender drops a message only when every recipient has it; buffers stay bounded",
    "D5": "crash and omission do not block; any member succeeds a causal server",
    "D6": "at most five integers of control information for sixty processes",
    "D7": "the three optimisations, with their prices; any k members may die",
    "D8": "delay, resequencing buffer, stability delay and storage against a flat group, with load",
    "D9": "safe, live and reliable under crashes of any process and omission",
    "C1": "point-to-point causal order over clusters with agents, on any number of layers",
    "C2": "the printed routing procedure gives the unique path",
    "C3": "the matrix algorithm in every cluster, the centralised one in every cluster, and every mix",
    "C4": "the relay has to forward in the order of delivery",
    "C5": "the five shapes of a route",
    "C6": "header cost: quadratic flat, linear with two layers, logarithmic with more",
    "C7": "arrival rates at coordinators against the number of clusters",
    "C8": "more layers mean more hops and smaller headers: where the gain ends",
    "G1": "subgroups with different orderings in one group, with global vectors and without markers elsewhere",
    "G2": "vectors sized by the number of subgroups; Fig. 8",
    "G3": "what is concurrent at its senders stays concurrent",
    "G4": "a hundred processes in ten subgroups: a tenth of the header",
    "G5": "centralised, decentralised, distributed and delayed acks; the nearest one retransmits",
    "G6": "physical clocks: what is sent later is not ordered before, within the skew",
    "M1": "any acyclic arrangement of domains; Fig. 2",
    "M2": "acyclic if and only if causal, by the paper's notion of a cycle",
    "M3": "updates send only what changed and deliver as full matrices do",
    "M4": "engine, channel and network; agents persistent, reactions atomic",
    "M5": "one queue and clock per domain, static routes, save before send, acknowledge after save",
    "M6": "without domains the cost grows with the square of the number of servers",
    "M7": "with domains on a bus it grows linearly; bus, daisy and tree are three graphs",
    "M8": "logarithmic cost for a tree of fixed domains; where a bus beats it",
    "M9": "the best split, found from traffic, a description or the network",
    "M10": "domains with updates reduce stamps and state",
    "M11": "state kept and bytes written to disk per message, with and without domains",
}

STILL_TO_COME: Final = frozenset({"M9"})
"""Claims that no mistake is planted for yet. This only becomes shorter: a claim that has a mistake must leave it."""
