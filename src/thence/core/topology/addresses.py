"""Where a server is, as text: ``host:port``. What cannot be one is refused where it is read, not where it is first called."""

from __future__ import annotations

from typing import Final

from thence.errors import ConfigError

MAX_HOST_CHARACTERS: Final = 253
"""The longest name of a host that the system of names knows."""

MAX_LABEL_CHARACTERS: Final = 63
"""The longest part of such a name."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``."""
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    fits = colon and port.isascii() and port.isdigit() and 0 <= int(port) < 65536
    if not fits or not _can_be_host(host):
        raise ConfigError(f"{address!r} is no address; it must be host:port, such as 127.0.0.1:7401")
    return host, int(port)


def _can_be_host(host: str) -> bool:
    """Say whether the system could know such a name. An empty one stands for all addresses of this machine."""
    if not host:
        return True
    labels = host.removesuffix(".").split(".")
    return (
        len(host) <= MAX_HOST_CHARACTERS
        and host.isprintable()
        and " " not in host
        and all(0 < len(label) <= MAX_LABEL_CHARACTERS for label in labels)
    )
