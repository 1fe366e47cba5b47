"""The file of a fabric: what it says, the line and the words of every mistake, there and back again, and any text at all."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fabrics import fabric_for
from thence.core.topology import toml
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.topology.toml import ONLY_SIMULATED, parse, write
from thence.errors import ConfigError, TopologyError

CITY = """\
name = "city"

[domains.A]
members  = ["s1", "s2", "s3"]
ordering = "matrix"

[domains.D]
members  = ["s3", "s6"]
ordering = { name = "vector", stamps = "full" }

[domains.C]
members  = ["s7", "s8"]

[[links]]
between = ["A", "C"]
relays  = [
    ["s1", "s7"],
    ["s2", "s8"],
]

[servers.s1]
address = "127.0.0.1:7401"
[servers.s2]
"""


def test_what_the_file_says() -> None:
    city = parse(CITY)
    assert (city.name, city.promise) == ("city", "causal")
    assert list(city.domains.values()) == [
        Domain("A", ("s1", "s2", "s3"), "matrix"),
        Domain("D", ("s3", "s6"), "vector", {"stamps": "full"}),
        Domain("C", ("s7", "s8"), "matrix"),
    ]
    assert city.links == {"A-C": Link("A-C", ("A", "C"), (("s1", "s7"), ("s2", "s8")))}
    assert city.relays == ("s3",)
    assert city.addresses == {"s1": "127.0.0.1:7401"}


def test_every_key_of_a_link() -> None:
    text = CITY.replace('name = "city"', 'name = "city"\npromise = "fifo"').replace(
        "[[links]]", '[[links]]\nname = "bridge"\nmode = "fifo"\nonly_from = ["s6"]'
    )
    (link,) = parse(text.replace('["s1", "s7"],\n', ""), force=True).links.values()
    assert (link.name, link.mode, link.only_from, link.relays) == ("bridge", "fifo", ("s6",), (("s2", "s8"),))


CONFIRMING = 'scheme = "distributed", retransmission = "nearest", after_messages = 8'


def confirming(table: str) -> str:
    """Return the text of a fabric whose domain D acks so."""
    return CITY.replace('members  = ["s3", "s6"]\n', f'members  = ["s3", "s6"]\nconfirmation = {{ {table} }}\n')


def test_how_a_domain_confirms() -> None:
    fabric = parse(confirming(f'{CONFIRMING}, after = "20ms", sites = [["s6"]]'))
    assert fabric.domains["D"].acks == AckOptions(
        scheme="distributed", retransmission="nearest", after_messages=8, after_ns=20_000_000, sites=(("s6",),)
    )
    assert fabric.domains["A"].acks == AckOptions()
    (line,) = (line for line in write(fabric).splitlines() if "confirmation" in line)
    assert line == f'confirmation = {{ {CONFIRMING}, sites = [["s6"]], after = "20ms" }}'


# --- mistakes ------------------------------------------------------------------------------------------------------------


def refusal(text: str) -> tuple[int, str]:
    """Return the line of the mistake and what is said about it."""
    with pytest.raises(ConfigError) as refused:
        parse(text, "city.toml")
    where = re.match(r"city\.toml:(\d+): (.*)", str(refused.value), re.DOTALL)
    assert where, str(refused.value)
    return int(where[1]), where[2]


def line_of(text: str, words: str) -> int:
    """The line on which these words stand, which must be there once."""
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if words in line]
    assert len(lines) == 1, words
    return lines[0]


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        # Not TOML at all.
        ('["s3", "s6"]', '["s3", "s6"', 'ordering = { name', "Unclosed array"),
        ("[domains.C]", "[domains.A]", None, "Cannot declare ('domains', 'A') twice"),
        # Unknown and missing keys.
        ('name = "city"', 'nme = "city"', 'nme = "city"', "there is no key 'nme'; did you mean 'name'?"),
        ('name = "city"', 'name = "city"\ncolour = 1', "colour", "there is no key 'colour'; there are: name, domains,"),
        ('name = "city"', "", None, "the key 'name' is missing"),
        ('members  = ["s7",', 'membrs = ["s7",', "membrs", "domain 'C': there is no key 'membrs'; did you mean 'members'?"),
        ('members  = ["s7", "s8"]', 'ordering = "fifo"', "[domains.C]", "domain 'C': the key 'members' is missing"),
        ('between = ["A", "C"]', 'betwen = ["A", "C"]', "betwen", "link 1: there is no key 'betwen'; did you mean 'between'?"),
        ('between = ["A", "C"]', "", "[[links]]", "link 1: the key 'between' is missing"),
        ('address = "127', 'adress = "127', "adress", "server 's1': there is no key 'adress'; did you mean 'address'?"),
        # Wrong types.
        ('name = "city"', "name = 7", "name = 7", "name: Expected text, got a number"),
        ('["s7", "s8"]', '"s7 s8"', '"s7 s8"', "domain 'C': members: Expected a list, got text"),
        ('["s7", "s8"]', '["s7", 8]', '["s7", 8]', "domain 'C': members: Expected text, got a number"),
        ('between = ["A", "C"]', 'between = ["A"]', 'between = ["A"]', "link 1: between: Expected a list of length 2, got 1"),
        ('["s2", "s8"],', '["s2"],', "relays", "link 1: relays: Expected a list of length 2, got 1"),
        ("[[links]]", '[[links]]\nmode = "total"', 'mode = "total"', "link 1: mode: Invalid enum value 'total'"),
        ("[[links]]", '[[links]]\nmode = "printed"', 'mode = "printed"', f"link 1: mode = 'printed' {ONLY_SIMULATED}"),
        ("[[links]]", '[[links]]\nwait = "sent"', 'wait = "sent"', f"link 1: wait {ONLY_SIMULATED}"),
        ('members  = ["s7", "s8"]', 'members = ["s7", "s8"]\nwait = "sent"', "wait", "domain 'C': there is no key 'wait'; there"),
        ('name = "city"', 'name = "city"\npromise = "much"', "promise", "promise: Invalid enum value 'much'"),
        ("[[links]]", "[links]", "[links]", "links: Expected a list, got a table"),
        ('address = "127.0.0.1:7401"', "address = 7401", "address", "server 's1': address: Expected text, got a number"),
        # No fabric.
        ('ordering = "matrix"', 'ordering = "matriks"', "[domains.A]", "domain 'A': there is no ordering 'matriks'; did you"),
        ('{ name = "vector", stamps', '{ stamps', "[domains.D]", "domain 'D': an ordering with options needs a name"),
        ('stamps = "full"', 'stamp = "full"', "[domains.D]", "domain 'D': vector: Object contains unknown field `stamp`"),
        ('"s7", "s8"]', '"s7", "s 8"]', '"s 8"', "'s 8' is no name"),
        ('["s7", "s8"]', '["s3", "s8"]', '["s1", "s7"]', "link 'A-C': 's7' is no member of domain 'C'"),
        ('["s1", "s7"],', '["s1", "s77"],', '"s77"', "link 'A-C': 's77' is no member of domain 'C', so it can be no relay"),
        ('["s2", "s8"],', '["s2", "s88"],', '"s88"', "link 'A-C': 's88' is no member of domain 'C'"),
        ('between = ["A", "C"]', 'between = ["A", "CC"]', '"CC"', "links: there is no domain 'CC'; did you mean 'C'?"),
        ('["s3", "s6"]', '["s4", "s6"]', "[domains.D]", "domain 'D' cannot be reached from 'A'"),
        ('["s3", "s6"]', '["s3", "s2", "s6"]', "[domains.", "a cycle: "),
        ("[servers.s2]", "[servers.x9]", "[servers.x9]", "servers: there is no process 'x9'"),
        ('[servers.s1]', "[servers.s11]", "[servers.s11]", "servers: there is no process 's11'; did you mean 's1'?"),
        ('name = "city"', 'name = "city"\npromise = "total"', "promise", "promise = 'total': one order for all cannot be kept"),
        ('ordering = "matrix"', 'ordering = "fifo"', "[domains.A]", "domain 'A' runs fifo, which does not keep causal order"),
        ("[[links]]", '[[links]]\nmode = "fifo"', "[[links]]", "link 'A-C' has mode = 'fifo'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(old: str, new: str, at: str | None, says: str) -> None:
    assert CITY.count(old) == 1
    text = CITY.replace(old, new)
    line, said = refusal(text)
    assert said.startswith(says)
    if at == "[domains.":
        assert text.splitlines()[line - 1].startswith(at)
    elif at is not None:
        assert line == line_of(text, at)


def test_bodies_may_go_ahead() -> None:
    text = CITY.replace('ordering = "matrix"', 'ordering = "matrix"\nforward_early = 1000')
    fabric = parse(text)
    assert [domain.forward_early for domain in fabric.domains.values()] == [1000, None, None]
    assert same(parse(write(fabric)), fabric)
    assert refusal(text.replace("1000", "-1")) == (6, "domain 'A': forward_early is a number of bytes, 0 or more")
    assert refusal(text.replace("1000", '"much"'))[1].startswith("domain 'A': forward_early: Expected a number")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('sceme = "distributed"', "there is no key 'sceme'; did you mean 'scheme'?"),
        ('scheme = "loud"', "scheme: Invalid enum value 'loud'"),
        ('after_messages = "8"', "after_messages: Expected a number, got text"),
        ('after_messages = 8, after = "20"', "'20' has no unit: did you mean 20ms?"),
        ('after_messages = 8, after = "1s"', "after is 1s: a sender repeats after 200ms"),
        ('scheme = "centralised"', "scheme 'centralised' is one member who passes everything on, and with vector all send"),
        (f'{CONFIRMING}, after = "20ms", sites = [["s9"]]', "sites: 's9' is not among the members s3, s6"),
    ],
)
def test_a_way_of_confirming_that_cannot_be_is_told_with_its_line(table: str, says: str) -> None:
    text = confirming(table)
    line, said = refusal(text)
    assert said.startswith(f"domain 'D': confirmation: {says}")
    assert line == line_of(text, "confirmation =")


def test_an_ordering_that_stamps_for_each_receiver_cannot_confirm_to_all() -> None:
    text = CITY.replace('ordering = "matrix"', 'ordering = "matrix"\nconfirmation = { scheme = "distributed" }')
    line, said = refusal(text)
    assert line == line_of(text, "confirmation =")
    assert said.endswith("matrix stamps for each receiver: use ordering 'vector', or scheme 'decentralised'")
    assert refusal(confirming("1").replace("{ 1 }", "3"))[1].startswith("domain 'D': confirmation: Expected a table")


def test_the_second_link_is_told_by_its_line() -> None:
    second = '\n[[links]]\nbetween = ["D", "C"]\nrelays = [["s6", "s9"]]\n'
    text = CITY + second
    assert refusal(text) == (
        line_of(text, '"s9"'),
        "link 'D-C': 's9' is no member of domain 'C', so it can be no relay there",
    )
    named = text.replace('between = ["D", "C"]', 'between = ["D", "C"]\nname = "far"\nmode = 3')
    line, said = refusal(named)
    assert (line, said.partition(":")[0]) == (line_of(named, "mode = 3"), "link 2")


def test_names_that_need_quotes_are_found_too() -> None:
    text = 'name = "t"\n[domains."a.b"]\nmembers = ["x"]\nordering = "nothing at all"\n'
    assert refusal(text)[0] == 2


def test_nested_too_deep_is_refused() -> None:
    assert refusal("a = " + "[" * 5000 + "]" * 5000) == (1, "brackets are nested too deep")


def test_too_large_is_refused_by_the_name_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml, "MAX_TEXT_BYTES", 10)
    with pytest.raises(ConfigError, match=r"^city\.toml: larger than MAX_TEXT_BYTES, which is 10$"):
        parse(CITY, "city.toml")


def test_what_is_forced_is_not_refused_for_a_cycle() -> None:
    text = CITY.replace('["s3", "s6"]', '["s3", "s2", "s6"]')
    cycle = parse(text, force=True).find_cycle()
    assert cycle is not None
    with pytest.raises(TopologyError, match="a cycle"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ('name = "../up"\n[domains.A]\nmembers = ["a", "b"]\n', 1, "../up"),
        ('name = "a\\u001b[2J"\n[domains.A]\nmembers = ["a", "b"]\n', 1, "a\x1b[2J"),
        ('name = "up"\n[domains."A/B"]\nmembers = ["a", "b"]\n', 2, "A/B"),
        ('name = "up"\n[domains.A]\nmembers = ["a",\n  "../../b"]\n', 4, "../../b"),
        (('name = "up"\n[domains.A]\nmembers = ["a"]\n[domains.B]\nmembers = ["b"]\n'
         '[[links]]\nname = "x/y"\nbetween = ["A", "B"]\nrelays = [["a", "b"]]\n'), 6, "x/y"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("force", [False, True])
def test_a_name_that_leads_elsewhere_is_told_with_its_line(text: str, line: int, name: str, force: bool) -> None:
    with pytest.raises(TopologyError) as refused:
        parse(text, "up.toml", force=force)
    assert str(refused.value).startswith(f"up.toml:{line}: {name!r} is no name: ")


# --- there and back ------------------------------------------------------------------------------------------------------


def same(one: Topology, other: Topology) -> bool:
    return all(
        getattr(one, field) == getattr(other, field) for field in ("name", "promise", "domains", "links", "addresses", "homes")
    )


@given(st.integers(0, 2**32))
def test_what_is_written_is_read_again(seed: int) -> None:
    topology = fabric_for(seed, "fifo" if seed % 2 else "causal")
    assert same(parse(write(topology)), topology)


NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), min_size=1, max_size=12).filter(
    lambda text: text not in {".", ".."}
)


@given(
    fabric=st.lists(NAMES, min_size=1, max_size=3).map(" ".join),
    members=st.lists(NAMES, min_size=2, max_size=5, unique=True),
    domain=NAMES,
    addresses=st.booleans(),
)
def test_any_name_is_written_so_that_it_is_read_again(fabric: str, members: list[str], domain: str, addresses: bool) -> None:
    places = {members[0]: "127.0.0.1:1"} if addresses else {}
    other = f"{domain[:8]}-2"
    link = Link("between", (domain, other), ((members[0], members[-1]),), "fifo", only_from=(members[0],))
    halves = [Domain(domain, tuple(members[:-1]), "fifo"), Domain(other, (members[-1],), "matrix", {"stamps": "full"})]
    topology = Topology(fabric, halves, [link], promise="fifo", addresses=places)
    assert same(parse(write(topology)), topology)


# --- any text ------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *CITY.splitlines(keepends=True),
        "[[links]]\n", "[domains.A.ordering]\n", "name = 'matrix'\n", "relays = []\n", "members = []\n", "ordering = {}\n",
        "promise = 'fifo'\n", "mode = 'printed'\n", "only_from = ['s1']\n", "[domains]\n", "links = 3\n",
        "servers = 1979-05-27\n",
        "domains = {}\n", "x = nan\n", "options = { a = { b = 1 } }\n", "[domains.\"\"]\n", "members = ['']\n",
        "ordering = { name = 'sequenced', coordinator = 's7' }\n", "ordering = { name = 'flood', links = [['s7', 's9']] }\n",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=25))
def test_whatever_the_text_only_a_config_error_comes_of_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        topology = parse(text, "any.toml")
    except ConfigError as error:
        where = re.match(r"any\.toml:(\d+): .", str(error))
        told = int(where[1]) if where else 0
    else:
        told = 1
        assert same(parse(write(topology)), topology)
    assert 1 <= told <= max(1, len(text.splitlines()) + 1)


@given(st.integers(0, len(CITY) - 1), st.text(max_size=3), st.integers(0, 5))
def test_whatever_is_changed_only_a_config_error_comes_of_it(at: int, put: str, taken: int) -> None:
    text = CITY[:at] + put + CITY[at + taken :]
    try:
        assert parse(text, "any.toml").processes
    except ConfigError as error:
        told = str(error)
    else:
        told = "any.toml:1: "
    assert re.match(r"any\.toml:\d+: ", told)
