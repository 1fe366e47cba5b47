"""A fabric as text: one TOML file for the simulator, the explorer and the servers alike.

Rules:

* Whatever is wrong is reported with the line it stands on, what was expected, and a suggestion where there is one.
* Nothing is guessed: an unknown key is an error, since it is mostly a typing mistake.
* ``parse`` and ``write`` are inverse to each other.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Literal

import msgspec

from thence.core.topology.ack_options import AT_ONCE, MAX_DISTRIBUTED, AckOptions
from thence.core.topology.domain import Delivering, Domain
from thence.core.topology.durations import format_duration, parse_duration_ns
from thence.core.topology.model import Link, Promise, Topology
from thence.errors import ConfigError, TopologyError

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""The largest topology file that is read."""


ONLY_SIMULATED = (
    "belongs to Fig. 5 of interconnect as printed, which is not causal: only studies and tests still simulate it, by "
    "thence.studies.parts.printed_links; use mode = 'causal' or mode = 'fifo', and leave wait out"
)
"""What to know of a file for a version that ran it."""

HEADER = re.compile(r"\s*\[{1,2}\s*[\"']?(domains|links|relays|servers)[\"']?\s*[.\]]")
"""The line of a table. A line of a list of relays may begin with a bracket as well."""


class _DomainTable(msgspec.Struct, forbid_unknown_fields=True):
    members: tuple[str, ...]
    ordering: str | dict[str, Any] | None = None
    acks: dict[str, Any] | None = msgspec.field(default=None, name="confirmation")
    forward_early: int | None = None
    delivery: Delivering = "at once"
    pairs: tuple[tuple[str, str], ...] = ()
    by_sender: bool = False
    only_from: tuple[str, ...] | None = None


class _LinkTable(msgspec.Struct, forbid_unknown_fields=True):
    between: tuple[str, str]
    relays: tuple[tuple[str, str], ...]
    name: str | None = None
    mode: Literal["causal", "fifo"] = "causal"
    only_from: tuple[str, ...] | None = None
    takeover: bool = False


class _RelayTable(msgspec.Struct, forbid_unknown_fields=True):
    replicas: tuple[str, ...]
    local: str | None = None


class _ServerTable(msgspec.Struct, forbid_unknown_fields=True):
    address: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    domains: dict[str, _DomainTable]
    links: list[_LinkTable] = []
    relays: list[_RelayTable] = []
    servers: dict[str, _ServerTable] = {}
    promise: Promise = "causal"
    version: int = 1
    stability: bool = False


def parse(text: str, source: str = "topology", *, force: bool = False) -> Topology:
    """Return the fabric that ``text`` describes; ``source`` is named in errors."""
    if len(text) > MAX_TEXT_BYTES:
        raise ConfigError(f"{source}: larger than MAX_TEXT_BYTES, which is {MAX_TEXT_BYTES}")
    try:
        tables = tomllib.loads(text)
    except ValueError as error:  # What cannot be read; also a number of too many digits, which names no line.
        at = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{source}:{at[1] if at else max(1, len(text.splitlines()))}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source}:1: brackets are nested too deep") from None
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as error:
        about, what = _misfit(tables, error)
        raise ConfigError(f"{source}:{_line(text, about)}: {what}") from None
    replicas = [table.replicas for table in file.relays]
    links = [_link(table) for table in file.links]
    replicated = {name for group in (*replicas, *(side for link in links for side in link.sequencers)) for name in group}
    try:
        return Topology(
            file.name,
            [_domain(name, table, replicated) for name, table in file.domains.items()],
            links,
            replicas=replicas,
            local={name: table.local for table in file.relays if table.local is not None for name in table.replicas},
            promise=file.promise,
            force=force,
            addresses={name: table.address for name, table in file.servers.items()},
            version=file.version,
            stability=file.stability,
        )
    except TopologyError as error:
        raise TopologyError(f"{source}:{_line(text, error.about)}: {error}", *error.about) from None


class _AckTable(msgspec.Struct, forbid_unknown_fields=True):
    scheme: Literal["decentralised", "centralised", "distributed"] = "decentralised"
    retransmission: Literal["sender", "nearest"] = "sender"
    after_messages: int = 1
    after: str = "0s"
    whole: bool = False
    sites: tuple[tuple[str, ...], ...] = ()


def _domain(name: str, table: _DomainTable, replicas: Collection[str]) -> Domain:
    # Where one replica takes over from another, whoever has a message of the dead one must be able to pass it on.
    replicated = any(member in replicas for member in table.members)
    if table.ordering is None:
        table.ordering = "vector" if replicated else "matrix"
    if table.acks is None:
        passes_on = replicated and table.ordering == "vector" and len(table.members) <= MAX_DISTRIBUTED
        table.acks = {"scheme": "distributed", "retransmission": "nearest", "whole": True} if passes_on else {}
    acks = _ack_options(name, table.acks)
    options = {"name": table.ordering} if isinstance(table.ordering, str) else dict(table.ordering)
    ordering = options.pop("name", None)
    if not isinstance(ordering, str):
        raise TopologyError(
            f"domain {name!r}: an ordering with options needs a name, as in {{ name = 'matrix', … }}", "domains", name
        )
    works = (table.forward_early, table.delivery, table.pairs, table.by_sender, table.only_from)
    return Domain(name, table.members, ordering, options, acks, *works)


def _ack_options(domain: str, table: dict[str, Any]) -> AckOptions:
    try:
        read = msgspec.convert(table, _AckTable)
        after_ns = parse_duration_ns(read.after)
    except (msgspec.ValidationError, ConfigError) as error:
        key, what = _in_words(str(error), _AckTable)
        raise TopologyError(f"domain {domain!r}: confirmation: {what}", "domains", domain, *(key or ("confirmation",))) from None
    return AckOptions(
        scheme=read.scheme,
        retransmission=read.retransmission,
        after_messages=read.after_messages,
        after_ns=after_ns,
        whole=read.whole,
        sites=read.sites,
    )


def _link(table: _LinkTable) -> Link:
    name = table.name or "-".join(table.between)
    return Link(name, table.between, table.relays, table.mode, table.only_from, table.takeover)


def _misfit(tables: Mapping[str, Any], error: msgspec.ValidationError) -> tuple[tuple[str, ...], str]:
    """Return which part does not have the form of a fabric, and what is wrong with it."""
    parts: list[tuple[tuple[str, ...], str, Any, type[msgspec.Struct]]] = []
    forms: dict[str, type[msgspec.Struct]] = {"domains": _DomainTable, "servers": _ServerTable}
    for kind, form in forms.items():
        table = tables.get(kind)
        if isinstance(table, dict):
            parts += [((kind, name), f"{kind[:-1]} {name!r}: ", part, form) for name, part in table.items()]
    lists: dict[str, type[msgspec.Struct]] = {"links": _LinkTable, "relays": _RelayTable}
    for kind, form in lists.items():
        listed = tables.get(kind)
        if isinstance(listed, list):
            parts += [((kind, str(at)), f"{kind[:-1]} {at + 1}: ", part, form) for at, part in enumerate(listed)]
    for about, described, part, expected in parts:
        try:
            msgspec.convert(part, expected)
        except msgspec.ValidationError as found:
            key, what = _in_words(str(found), expected)
            return (*about, *key), f"{described}{what}"
    key, what = _in_words(str(error), _File)
    return key, what


def _in_words(error: str, form: type[msgspec.Struct]) -> tuple[tuple[str, ...], str]:
    """Return the key that an error of msgspec is about, and the error in the words of this format."""
    what, _, path = error.partition(" - at `$")
    keys = re.findall(r"\.([A-Za-z_]\w*)", path)[:1]
    unknown = re.search(r"unknown field `(.*)`", what)
    missing = re.search(r"missing required field `(.*)`", what)
    known = [field.encode_name for field in msgspec.structs.fields(form)]
    if form is _LinkTable and ((unknown and unknown[1] == "wait") or what.endswith("value 'printed'")):
        key, said = ("wait", "wait") if unknown else ("mode", "mode = 'printed'")
        return (key,), f"{said} {ONLY_SIMULATED}"
    if unknown:
        near = get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        return (unknown[1],), f"there is no key {unknown[1]!r}; {hint}"
    if missing:
        return (), f"the key {missing[1]!r} is missing"
    what = what.replace(" | null`", "`")
    for theirs, ours in (("`object`", "a table"), ("`array`", "a list"), ("`str`", "text"), ("`int`", "a number")):
        what = what.replace(theirs, ours)
    return tuple(keys), f"{keys[0]}: {what}" if keys else what


def _line(text: str, about: tuple[str, ...]) -> int:
    """Return the line on which the last of ``about`` stands, as near as it can be found."""
    lines = text.splitlines()
    start = 0
    if len(about) > 1 and about[0] in ("domains", "servers"):
        header = re.compile(rf"\s*\[\s*{about[0]}\s*\.\s*[\"']?{re.escape(about[1])}[\"']?\s*[\].]")
        start = next((at for at, line in enumerate(lines) if header.match(line)), 0)
    elif len(about) > 1 and about[0] == "links":
        start = _link_line(lines, about[1])
    elif len(about) > 1 and about[0] == "relays":
        start = _relay_line(lines, about[1])
    if len(about) == 1:
        key = re.compile(rf"\s*\[*\s*[\"']?{re.escape(about[0])}\b")
        return next((at + 1 for at, line in enumerate(lines) if key.match(line)), 1)
    for at in range(start + 1, len(lines)):
        if HEADER.match(lines[at]):
            break
        if len(about) > 2 and re.search(rf"(?<![\w-]){re.escape(about[-1])}(?![\w-])", lines[at]):
            return at + 1
    return start + 1


def _link_line(lines: list[str], name: str) -> int:
    """Return the index of the header of the link called ``name``, by name, by what it joins, or by its number."""
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[\[\s*links\s*\]\]", line)]
    for at in headers:
        end = next((later for later in range(at + 1, len(lines)) if HEADER.match(lines[later])), len(lines))
        block = "\n".join(lines[at:end])
        between = re.search(r"between\s*=\s*\[(.*?)\]", block, re.DOTALL)
        joined = "-".join(re.findall(r"[\"']([^\"']+)[\"']", between[1])) if between else ""
        if joined == name or re.search(rf"name\s*=\s*[\"']{re.escape(name)}[\"']", block):
            return at
    if name.isdecimal() and int(name) < len(headers):
        return headers[int(name)]
    return headers[0] if headers else 0


def _relay_line(lines: list[str], name: str) -> int:
    """Return the index of the header of the relay that has a replica called ``name``, or of the one with this number."""
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[\[\s*relays\s*\]\]", line)]
    if name.isdecimal() and int(name) < len(headers):
        return headers[int(name)]
    quoted = re.compile(rf"[\"']{re.escape(name)}[\"']")
    ends = [*headers[1:], len(lines)]
    found = (at for at, end in zip(headers, ends, strict=True) if quoted.search("\n".join(lines[at:end])))
    return next(found, headers[0] if headers else 0)


def write(topology: Topology) -> str:
    """Return the text of a fabric."""
    parts = [f"name = {_quoted(topology.name)}"]
    if topology.version != 1:
        parts.append(f"version = {topology.version}")
    if topology.promise != "causal":
        parts.append(f"promise = {_quoted(topology.promise)}")
    if topology.stability:
        parts.append("stability = true")
    for domain in topology.domains.values():
        parts += _domain_lines(domain, replicated=any(member in topology.fellows for member in domain.members))
    for link in topology.links.values():
        parts.append(f"\n[[links]]\nname = {_quoted(link.name)}\nbetween = {_value(list(link.between))}")
        parts.append(f"relays = {_value([list(pair) for pair in link.relays])}")
        parts.append(f"mode = {_quoted(link.mode_name)}")
        if link.only_from is not None:
            parts.append(f"only_from = {_value(list(link.only_from))}")
    for group in topology.replicas:
        parts.append(f"\n[[relays]]\nreplicas = {_value(list(group))}")
        if group[0] in topology.local:
            parts.append(f"local = {_quoted(topology.local[group[0]])}")
    for server, address in topology.addresses.items():
        parts.append(f"\n[servers.{_key(server)}]\naddress = {_quoted(address)}")
    return "\n".join(parts) + "\n"


def _domain_lines(domain: Domain, *, replicated: bool) -> list[str]:
    lines = [f"\n[domains.{_key(domain.name)}]\nmembers = {_value(list(domain.members))}"]
    ordering = domain.ordering if isinstance(domain.ordering, str) else domain.ordering.traits.name
    lines.append(f"ordering = {_value({'name': ordering, **domain.options} if domain.options else ordering)}")
    if domain.acks != AT_ONCE or replicated:
        lines.append(f"confirmation = {_value(_ack_table(domain.acks))}")
    if domain.forward_early is not None:
        lines.append(f"forward_early = {domain.forward_early}")
    if domain.delivery != "at once":
        lines.append(f"delivery = {_quoted(domain.delivery)}")
    if domain.pairs:
        lines.append(f"pairs = {_value([list(pair) for pair in domain.pairs])}")
    if domain.by_sender:
        lines.append("by_sender = true")
    if domain.only_from is not None:
        lines.append(f"only_from = {_value(list(domain.only_from))}")
    return lines


def _ack_table(acks: AckOptions) -> dict[str, Any]:
    """Return what differs from what is so unless told otherwise."""
    after = {"after": format_duration(acks.after_ns)} if acks.after_ns else {}
    values = {**msgspec.structs.asdict(acks), **after}
    changed = {name: value for name, value in values.items() if value != getattr(AT_ONCE, name, None)}
    changed.pop("after_ns", None)
    return changed


# Our own, since the text of a topology is kept in stores and compared: tomli-w breaks every list over several lines and makes a
# table of each ordering with options, tomlkit writes inline tables otherwise and is slower (300 domains: 77 ms, ours 1 ms).


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _quoted(name)


def _quoted(text: str) -> str:
    # JSON and TOML write text alike, but for this one character.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    return _quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
