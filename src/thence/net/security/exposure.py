"""Who can reach a server, and what it must therefore have: checked before it listens, and before a client connects.

Rules:

* Without TLS a server listens on this machine only, unless it is told that this is meant (``--insecure``).
* The same holds for what it answers over HTTP, where there is never TLS, and nobody is asked for anything.
* Tokens go over TLS, or stay on this machine. Nothing changes that.
* With tokens for clients, servers prove who they are too: otherwise whoever calls itself a peer would need no token.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from thence.core.topology.addresses import parse_address
from thence.errors import ConfigError

SCHEMES: Final = ("thence", "thences")
"""Without and with TLS."""


def parse_url(url: str) -> tuple[str, int, bool]:
    """Return host, port and whether TLS is asked for, of ``thence://host:port`` or ``thences://host:port``."""
    parts = urlsplit(url if "://" in url else f"thence://{url}")
    if parts.scheme not in SCHEMES or parts.path not in ("", "/"):
        raise ConfigError(f"{url!r} is no address of a server; it must be thence://host:port, or thences://host:port for TLS")
    host, port = parse_address(parts.netloc)
    return host, port, parts.scheme == "thences"


def is_loopback(host: str) -> bool:
    """Say whether an address is this machine's own, which nobody else can reach. A name other than localhost may be any."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def check_listening(host: str, *, tls: bool, access: bool, insecure: bool, peers: bool) -> None:
    """Refuse to listen where that would let in whoever comes."""
    if tls:
        return
    if not is_loopback(host):
        if access:
            raise ConfigError(
                f"{host!r} can be reached from other machines, and tokens go over TLS only there: "
                "give --tls-cert, --tls-key and --tls-ca"
            )
        if not insecure:
            raise ConfigError(
                f"{host!r} can be reached from other machines, and whoever reaches it would be let in: give --tls-cert, "
                "--tls-key and --tls-ca, or listen on 127.0.0.1; --insecure if it is meant so"
            )
    if access and peers and not insecure:
        raise ConfigError(
            "with an access file and peers a server needs TLS, since whoever called itself a peer would need no token: "
            "give --tls-cert, --tls-key and --tls-ca; --insecure if peers are to be taken at their word"
        )


def check_answering(host: str, *, insecure: bool) -> None:
    """Refuse to answer over HTTP where that would tell whoever comes."""
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"--metrics: {host!r} can be reached from other machines, and whoever reaches it would be told how this server is, "
            "without TLS: listen on 127.0.0.1; --insecure if it is meant so"
        )


def check_calling(url: str, host: str, *, tls: bool, token: bool) -> None:
    """Refuse to use a token where others may be in between."""
    if token and not tls and not is_loopback(host):
        raise ConfigError(f"{url!r} is on another machine, and a token goes over TLS only there: use thences://")
