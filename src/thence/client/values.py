"""Values in bodies, read such that no body stops its reader.

Rules:

* What cannot be read raises one of ``UNREADABLE``, also where a set is to be made of what cannot be in one.
* A table finds its keys by their hashes. Those of texts and bytes are secret. Those of lists are not: whoever writes a table of
  lists that all have one hash makes each be compared with all before it, which takes hours for 16 MiB. So a body that can hold
  such a table is looked through first, and refused if more than ``MAX_ALIKE`` keys of one table have one hash.
* Sets, and tables by tuples, are made of lists where the type says so. That is for whoever says so to consider.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_ALIKE: Final = 128
"""How many keys of one table that are lists may have one hash."""

MAX_DEPTH: Final = 20_000
"""How deep a body may be nested that is looked through: deeper than any that can be read."""

_ARRAY_HEADS: Final = bytes([*range(0x90, 0xA0), 0xDC, 0xDD])
_TABLE_HEADS: Final = (0xDE, 0xDF)
_LONG_HEADS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Of long lists and tables: how many bytes their length has, and how many items there are for each."""
_TEXT_HEADS: Final = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0)} | {
    0xDA: (2, 0),
    0xDB: (4, 0),
}
"""Of texts, bytes and extensions: how many bytes their length has, and how many more there are."""
_NUMBER_BYTES: Final = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9} | {
    0xD4: 3,
    0xD5: 4,
    0xD6: 6,
    0xD7: 10,
    0xD8: 18,
}
_BYTES: Final = [
    1 + (kind & 0x1F) if 0xA0 <= kind <= 0xBF else 0 if kind in _LONG_HEADS or kind in _TEXT_HEADS else _NUMBER_BYTES.get(kind, 1)
    for kind in range(256)
]
"""How long an item is that begins so, without the items in it; 0: that is behind its head."""
_ITEMS: Final = [2 * (kind & 0x0F) if 0x80 <= kind <= 0x8F else kind & 0x0F if 0x90 <= kind <= 0x9F else 0 for kind in range(256)]
"""How many items are in a short list or table."""

_decode = msgspec.msgpack.decode


def decode_value(body: bytes, as_type: Any = Any) -> Any:
    """Return a body as a value of a type."""
    if _may_hold_tables_of_lists(body):
        check_tables(body)
    try:
        return _decode(body, type=as_type)
    except TypeError as error:
        msgspec.msgpack.Decoder(as_type)  # This raises if it is about the type, and not about the body.
        raise msgspec.DecodeError(str(error)) from None


def _may_hold_tables_of_lists(body: bytes) -> bool:
    """Say whether there can be a table with many lists for keys, by which bytes there are: that costs little."""
    if len(body) <= MAX_ALIKE or (b"\xde" not in body and b"\xdf" not in body):
        return False
    return len(body) - len(body.translate(None, _ARRAY_HEADS)) > MAX_ALIKE


def check_tables(body: bytes) -> None:
    """Refuse a body with a table of which too many keys have one hash."""
    outside: list[tuple[int, dict[int, int] | None]] = []
    left = 1
    """How many items are left of what we are in."""
    hashes: dict[int, int] | None = None
    """Of a long table, how many of its keys have which hash."""
    at, end = 0, len(body)
    while at < end:
        kind = body[at]
        left -= 1
        begin = at
        at, items = _step(body, at)
        if hashes is not None and left & 1 and kind in _ARRAY_HEADS:  # A key is next if an odd number is behind it.
            at = _behind(body, at, items)
            _count(hashes, body[begin:at])
        elif items:
            outside.append((left, hashes))
            left, hashes = items, {} if kind in _TABLE_HEADS and items > 2 * MAX_ALIKE else None
            if len(outside) > MAX_DEPTH:
                raise msgspec.DecodeError(f"it is nested more than {MAX_DEPTH} times")
        while not left and outside:
            left, hashes = outside.pop()


def _step(body: bytes, at: int) -> tuple[int, int]:
    """Return where the item ends that begins here, without the items in it, and how many of these there are."""
    kind = body[at]
    if size := _BYTES[kind]:
        return at + size, _ITEMS[kind]
    if kind in _TEXT_HEADS:
        width, more = _TEXT_HEADS[kind]
        return at + 1 + width + more + int.from_bytes(body[at + 1 : at + 1 + width]), 0
    width, times = _LONG_HEADS[kind]
    return at + 1 + width, times * int.from_bytes(body[at + 1 : at + 1 + width])


def _behind(body: bytes, at: int, items: int) -> int:
    """Return where these items end."""
    end = len(body)
    while items and at < end:
        at, more = _step(body, at)
        items += more - 1
    return at


def _count(hashes: dict[int, int], key: bytes) -> None:
    """Note one more key, as it is read; refuse the table if too many are alike."""
    (read,) = _decode(b"\x81" + key + b"\xc0")
    alike = hashes[hash(read)] = hashes.get(hash(read), 0) + 1
    if alike > MAX_ALIKE:
        raise msgspec.DecodeError(f"a table has more than {MAX_ALIKE} keys of one hash, which would take long to read")
