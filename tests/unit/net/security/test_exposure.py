"""Where a server may listen with what: the whole table."""

from __future__ import annotations

import itertools

import pytest

from thence.errors import ConfigError
from thence.net.security.exposure import check_answering, check_calling, check_listening, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "example.org", "localhost.example.org", "127.1"])
def test_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


REFUSED = {
    (host, tls, access, insecure, peers)
    for host, tls, access, insecure, peers in itertools.product(
        ("127.0.0.1", "0.0.0.0"), (True, False), (True, False), (True, False), (True, False)
    )
    if not tls
    and (
        (host == "0.0.0.0" and access)  # Tokens never go without TLS beyond this machine.
        or (host == "0.0.0.0" and not insecure)  # Whoever comes would be let in.
        or (access and peers and not insecure)  # Who calls itself a peer would need no token.
    )
}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("access", [True, False])
@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize("peers", [True, False])
def test_where_a_server_may_listen(host: str, tls: bool, access: bool, insecure: bool, peers: bool) -> None:
    if (host, tls, access, insecure, peers) in REFUSED:
        with pytest.raises(ConfigError, match=r"TLS|--tls-cert"):
            check_listening(host, tls=tls, access=access, insecure=insecure, peers=peers)
    else:
        check_listening(host, tls=tls, access=access, insecure=insecure, peers=peers)


def test_where_a_token_may_go() -> None:
    check_calling("thence://127.0.0.1:1", "127.0.0.1", tls=False, token=True)
    check_calling("thences://192.0.2.1:1", "192.0.2.1", tls=True, token=True)
    check_calling("thence://192.0.2.1:1", "192.0.2.1", tls=False, token=False)
    with pytest.raises(ConfigError, match="thences://"):
        check_calling("thence://192.0.2.1:1", "192.0.2.1", tls=False, token=True)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_what_is_answered_over_http_stays_on_this_machine_unless_told_otherwise(host: str) -> None:
    with pytest.raises(
        ConfigError, match=f"--metrics: '{host}' can be reached from other machines.*--insecure if it is meant so"
    ):
        check_answering(host, insecure=False)
    check_answering(host, insecure=True)
    check_answering("127.0.0.1", insecure=False)
