"""``thence up``: ports for servers that have none."""

from __future__ import annotations

import socket

import pytest

from thence.cli import up
from thence.cli.up import free_addresses


def test_a_port_is_kept_for_its_server_and_from_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "RESERVED_PORTS", 3)
    host, port = free_addresses(1)[0].split(":")
    with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
        other.bind((host, int(port)))
    with socket.create_server((host, int(port))), socket.create_connection((host, int(port))):
        pass
    assert len(set(free_addresses(3))) == 3
    assert len(up._reserved) == 3
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Of the connection above something is left.
        other.bind((host, int(port)))
        other.listen()
