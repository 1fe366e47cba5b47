"""Where a server is: what can be an address, and that a topology with another one is refused where it is written."""

from __future__ import annotations

import pytest

from thence.core.topology.addresses import parse_address
from thence.core.topology.toml import parse
from thence.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:7401", ("127.0.0.1", 7401)),
        ("[::1]:0", ("::1", 0)),
        ("example.org.:65535", ("example.org.", 65535)),
        (":7401", ("", 7401)),
        ("s-1_a:1", ("s-1_a", 1)),
    ],
)
def test_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert parse_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        "here",
        "here:",
        "here:x",
        "here:-1",
        "here:65536",
        "here:\u0663",
        "a..b:1",
        ".:1",
        f"{'x' * 64}.org:1",
        "a b:1",
        "a\0b:1",
    ],
)
def test_what_can_be_none_is_refused_also_in_a_topology(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address; it must be host:port"):
        parse_address(address)
    written = address.encode("unicode_escape").decode().replace("\\x", "\\u00")
    text = f'name = "t"\n[domains.D]\nmembers = ["s1"]\n[servers.s1]\naddress = "{written}"\n'
    with pytest.raises(ConfigError, match=r"t\.toml:5: server 's1': .* is no address"):
        parse(text, "t.toml")
    assert parse(text, force=True).addresses == {"s1": address}, "what is in a store is read all the same"
