"""What a node calls in the program that owns it: a server, a member inside a program, or a test."""

from __future__ import annotations

from collections.abc import Callable, Collection

from thence.node.directory.directory import DirectoryChange
from thence.node.spans import ServerSpans
from thence.runtime.event_loop import ignore
from thence.storage.mailbox import Batch
from thence.storage.rejections import Rejected


class NodeHooks:
    """The functions that a node calls; each does nothing until its owner sets another one."""

    def __init__(self) -> None:
        """Call nobody."""
        self.on_answered: Callable[[str, int, Rejected | None], None] = ignore
        """Takes a client, up to which number its messages are accepted or rejected, and what was rejected if something was."""
        self.on_messages: Callable[[Collection[str]], None] = ignore
        """Takes the clients that have new messages."""
        self.on_batch: Callable[[Batch], bool] | None = None
        """Is offered messages for the program itself, if it needs no mailbox; returns whether it takes them."""
        self.on_notice: Callable[[DirectoryChange], None] = ignore
        """Takes what a notice changed for clients."""
        self.on_room: Callable[[], None] = ignore
        """Called when something that was refused as busy may be tried again."""
        self.on_tick: Callable[[], None] = ignore
        """Called every ``LOOK_EVERY_S``."""
        self.on_failed: Callable[[Exception], None] = ignore
        """Takes the reason why the node cannot go on."""
        self.on_safe: Callable[[Collection[str]], None] = ignore
        """Takes the clients of which more messages are safe, or of which nobody finds out any more."""
        self.spans: ServerSpans | None = None
        """Follows messages through the node, if anything does."""
