"""Control frames on a connection: say one, refuse whoever called, hang up."""

from __future__ import annotations

from thence.net.framing import Connection
from thence.net.protocol import CONTROL_KIND, ControlFrame, Refused


def refuse(
    connection: Connection,
    reason: str,
    *,
    claims: str = "",
    later: bool = False,
    version: int = 0,
    fingerprint: str = "",
    gone: int = 0,
    behind: bool = False,
) -> None:
    """Say why, and hang up.

    ``claims``: who it says it is, for the log; ``later``: whether to try again; ``version``: of our topology, if that is why;
    ``gone``: with which version the caller was declared lost, if it was; ``behind``: whether it runs on an old copy.
    """
    connection.complain(f"refused{' ' + claims if claims else ''}: {reason}")
    hang_up(connection, Refused(reason, later, version, fingerprint, gone, behind=behind))


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
