"""Control frames on a connection: say one, refuse whoever called, hang up."""

from __future__ import annotations

from thence.net.framing import Connection
from thence.net.protocol import CONTROL_KIND, ControlFrame, Refused


def refuse(connection: Connection, why: str | Refused, *, claims: str = "") -> None:
    """Tell the other side why, and the log, and hang up. ``claims``: who it says it is, for the log."""
    refused = Refused(why) if isinstance(why, str) else why
    connection.complain(f"refused{' ' + claims if claims else ''}: {refused.reason}")
    hang_up(connection, refused)


def hang_up(connection: Connection, why: Refused) -> None:
    """End a connection and tell the other side why, where nobody did anything wrong."""
    tell(connection, why)
    connection.on_frame = ignore_frame
    connection.close()


def tell(connection: Connection, what: ControlFrame) -> None:
    """Send a frame that is no packet."""
    connection.writer.send(CONTROL_KIND, what)


def ignore_frame(connection: Connection, frame: memoryview) -> None:
    """Whoever was refused may still be talking."""
