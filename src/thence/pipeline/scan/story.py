"""A slice and what is on its way into it, put together for the replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from thence.pipeline.kernels.replay import DELIVER, NOBODY, Longs, Story
from thence.pipeline.kernels.slices import Slice, processes_of
from thence.pipeline.scan.flights import Flights


class SliceStory(NamedTuple):
    """A story, and which of its own messages are delivered though nobody ever sends them and no slice before has seen them."""

    story: Story
    unsent: Longs


def tell(given: Slice, base: Longs, flights: Flights) -> SliceStory:
    """Number the messages of a slice: first its own, then the flights. ``base`` counts what each process sent before.

    A message that the slice delivers and does not send is a flight, or it is never sent, or a later slice sends it and whoever
    delivers it must wait.
    """
    encoded, own = given.encoded, len(given.names)
    sends = len(encoded.send_event)
    sent = encoded.message[encoded.send_event]
    senders = processes_of(encoded)[encoded.send_event]
    first_send = np.searchsorted(senders, np.arange(encoded.processes))
    total = own + flights.count
    sender, rank, row = (np.full(total, NOBODY, np.int32) for _ in range(3))
    is_awaited, is_unaddressed = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    sender[sent], row[sent], is_awaited[sent] = senders, np.arange(sends), True
    rank[sent] = np.arange(sends) - first_send[senders] + base[senders]
    is_unaddressed[sent] = encoded.unaddressed
    sender[own:], rank[own:], row[own:], is_unaddressed[own:] = flights.sender, flights.rank, flights.slot, flights.unaddressed
    message = encoded.message
    is_outer = np.zeros(own, np.bool_)
    is_outer[message[encoded.role == DELIVER]] = True
    is_outer[sent] = False
    outer = np.flatnonzero(is_outer)
    flight = pc.index_in(given.names.take(outer), flights.names).fill_null(NOBODY).to_numpy()
    if np.any(flight != NOBODY):
        renamed = np.arange(-1, own, dtype=np.int32)  # the first place is for NOBODY
        renamed[outer[flight != NOBODY] + 1] = own + flight[flight != NOBODY]
        message = renamed[message + 1]
    strange = outer[flight == NOBODY]
    unsent = strange[given.unsent[strange]]
    is_awaited[strange] = True
    is_awaited[unsent] = False
    return SliceStory(Story(encoded.first, encoded.role, message, sender, rank, row, is_awaited, is_unaddressed, own), unsent)
