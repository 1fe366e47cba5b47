"""Who can reach a server, and what it must therefore have: checked before it listens, and before a client connects.

Rules:

* Without TLS a server listens on this machine only, unless it is told that this is meant (``--insecure``).
* The same holds for what it answers over HTTP, where there is never TLS, and nobody is asked for anything.
* Tokens go over TLS, or stay on this machine. Nothing changes that.
* With tokens for clients, servers prove who they are too: otherwise whoever calls itself a neighbour would need no token.
"""

from __future__ import annotations

import ipaddress

from thence.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Say whether an address is this machine's own, which nobody else can reach. A name other than localhost may be any."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def check_listening(host: str, *, tls: bool, access: bool, insecure: bool, neighbours: bool) -> None:
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
    if access and neighbours and not insecure:
        raise ConfigError(
            "with an access file and neighbours a server needs TLS, since whoever called itself a neighbour would need no token: "
            "give --tls-cert, --tls-key and --tls-ca; --insecure if neighbours are to be taken at their word"
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
