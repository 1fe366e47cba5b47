"""Frames for peers that are away, or much slower than we are, in files of the store: what ``core.transport.spill_queue``
asks for.

The member says which frames are too many for memory; they are written to files (``storage.spill``), a block at a time, and read
again when the peer gets to them. One list of files for each *way*: a peer in a domain or over a link.

Rules:

* A frame is in the member or in a file, never in both: so a snapshot has it once, and names the file that has it (``saved``).
* A file is done with when the member has all its frames back, or the peer has them. It goes with the next snapshot.
* Frames take at most a part of what may be spilled: a peer that stays away must not stop deliveries to clients. Beyond that,
  and on a full disk, frames stay in memory, where the member's limits hold, and clients have to wait with what they send.
* A file that cannot be read stops the way to that peer and no other: ``unreadable`` says where it is damaged. Nothing is
  left out, since what follows depends on it. It is tried again now and then: somebody may have brought the file back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from thence.core.member.contract import Fetched, Spilled
from thence.core.member.member import Member
from thence.core.member.spill import Way
from thence.core.transport.spill_queue import Numbered
from thence.core.wire.messages import Envelope
from thence.errors import Busy, StorageError, StoreFull
from thence.storage.spill import BlockReader, Spill, WaitingFrame
from thence.storage.spill_files import SpillFile, SpillFiles, split_done

FRAMES_SHARE: Final = 2
"""Of what may be spilled, one part in so many is the most that frames for peers take."""

SavedFiles = list[tuple[str, str, list[SpillFile]]]
"""Place and peer of each way, and its files."""

log = logging.getLogger("thence.outgoing")


class Outgoing:
    """The frames of one member that are in files."""

    def __init__(self, member: Member, spill: Spill, fetched: Callable[[Fetched], object]) -> None:
        """Keep frames of ``member`` in ``spill``; ``fetched`` hands in those that it wants back."""
        self._member = member
        self._spill = spill
        self._fetched = fetched
        self._files: dict[Way, SpillFiles] = {}
        self._readers: dict[Way, BlockReader[WaitingFrame]] = {}
        self.limit_bytes = spill.limit_bytes // FRAMES_SHARE
        self.full = ""
        """Why the last frames could not be written; until it is looked at again, none are."""
        self.unreadable: dict[Way, str] = {}
        """Ways whose next frames cannot be read, and why."""
        self._logged: dict[Way, str] = {}
        """What the log says of each way, so that it says it once."""
        self._busy = False

    # Back from the store.

    def restore(self, saved: SavedFiles) -> None:
        """Go on with the files that a snapshot names; they must have what the member says is elsewhere."""
        self._files = {Way(place, peer): tuple(files) for place, peer, files in saved}
        for way in self._member.spill.used():
            first, last = self._member.spill.elsewhere(way) or (0, 0)
            files = self._files.get(way, ())
            if not files or files[0].first > first or files[-1].last != last:
                raise StorageError(
                    f"the snapshot says that frames {first} to {last} for {way} are in files, and does not name them"
                )

    def files(self) -> list[SpillFile]:
        """Return all files that are needed."""
        return [file for files in self._files.values() for file in files]

    def saved(self) -> SavedFiles:
        """Return which files have what the member says is elsewhere, for a snapshot of both."""
        for way in list(self._files):
            self._let_go(way)
        return [(way.place, way.peer, list(files)) for way, files in self._files.items()]

    # While it runs.

    def write(self) -> None:
        """Write what is too much for memory. What is wanted back waits for ``look_after``."""
        for way in self._member.spill.take_attention():
            self._write(way)

    def look_after(self) -> None:
        """Write what is too much for memory, and hand in what is wanted back, until there is no more of either."""
        if self._busy:
            return  # What was handed in has led here again: whoever did that goes on.
        self._busy = True
        try:
            while ways := self._member.spill.take_attention():
                for way in ways:
                    self._write(way)
                    self._let_go(way)
                    self._fetch(way)
        except Busy:
            return  # The server is stopping.
        finally:
            self._busy = False

    def try_again(self) -> None:
        """Try what did not work before; to be called now and then."""
        if not self.full and not self.unreadable:
            return
        self.full = ""
        self.unreadable.clear()
        self._member.spill.attend_to_all()
        self.look_after()

    def _write(self, way: Way) -> None:
        while not self.full and (block := self._member.spill.block(way)):
            if self._member.spill.elsewhere(way) is None:
                self._let_go(way)  # Before the numbers of another version of the fabric, which begin anew.
            try:
                self._write_block(way, block)
            except StoreFull as error:
                self.full = str(error)
                self._tell(way, f"they stay in memory: {error}")
                return
            self._member.step(Spilled(way.place, way.peer, block[-1][0]), 0)

    def _tell(self, way: Way, trouble: str) -> None:
        if self._logged.get(way, "").partition(":")[0] != trouble.partition(":")[0]:  # The figures behind it may change.
            log.warning("frames for %s are not in files as they should be: %s", way, trouble)
        self._logged[way] = trouble

    def _write_block(self, way: Way, block: Numbered) -> None:
        if self.bytes >= self.limit_bytes:
            raise StoreFull(f"{self.bytes} bytes of frames are spilled in {self._spill.folder}; the limit is {self.limit_bytes}")
        if self._spill.full:
            raise StoreFull(self._spill.full)
        entries = [(number, WaitingFrame(frame)) for number, frame in block]
        self._files[way] = self._spill.write(str(way), entries, self._files.get(way, ()))
        self._logged.pop(way, None)

    def _fetch(self, way: Way) -> None:
        while way not in self.unreadable and self._member.spill.wants(way):
            try:
                frames = self._next_block(way)
            except StorageError as error:
                self.unreadable[way] = f"the frames for {way} cannot be read: {error}"
                self._tell(way, self.unreadable[way])
                return
            self._logged.pop(way, None)
            self._fetched(Fetched(way.place, way.peer, frames))
            self._let_go(way)

    def _next_block(self, way: Way) -> Numbered:
        first, last = self._member.spill.elsewhere(way) or (0, 0)
        reader = self._readers.setdefault(way, BlockReader(self._spill, str(way), WaitingFrame))
        block = reader.read(self._files[way], first)
        return [(number, entry.frame) for number, entry in block.items() if first <= number <= last]

    def _let_go(self, way: Way) -> None:
        """Forget the files that nobody needs any more but, perhaps, the last snapshot."""
        files, elsewhere = self._files.get(way, ()), self._member.spill.elsewhere(way)
        done, left = (files, ()) if elsewhere is None else split_done(files, elsewhere[0] - 1)
        self._spill.done_with(done)
        if left:
            self._files[way] = left
        else:
            self._files.pop(way, None)
            self._readers.pop(way, None)

    # Outside.

    def envelopes(self) -> Iterator[Envelope]:
        """Give all messages in files, for survivors who may lack them (``core.reconfig.flush``)."""
        for way, files in self._files.items():
            number, last = self._member.spill.elsewhere(way) or (1, 0)
            reader = BlockReader(self._spill, str(way), WaitingFrame)
            while number <= last:
                block = reader.read(files, number)
                yield from [entry.frame.envelope for entry in block.values() if entry.frame.envelope is not None]
                number = reader.next

    @property
    def bytes(self) -> int:
        """How long the files are."""
        return sum(file.end for files in self._files.values() for file in files)

    def frames_by_peer(self) -> dict[str, int]:
        """Return how many frames for each peer are in files."""
        found: dict[str, int] = {}
        for way in self._member.spill.used():
            first, last = self._member.spill.elsewhere(way) or (1, 0)
            found[way.peer] = found.get(way.peer, 0) + last - first + 1
        return found

    def bytes_by_peer(self) -> dict[str, int]:
        """Return how long the files for each peer are."""
        found: dict[str, int] = {}
        for way, files in self._files.items():
            found[way.peer] = found.get(way.peer, 0) + sum(file.end for file in files)
        return found

    def trouble_by_peer(self) -> dict[str, str]:
        """Return why frames for a peer cannot be read, where that is so."""
        return {way.peer: why for way, why in self.unreadable.items()}
