"""Values in bodies, read such that no body stops its reader.

Rules:

* What cannot be read raises one of ``UNREADABLE``, also where a set is to be made of what cannot be in one.
* A table finds its keys by their hashes. Those of texts and bytes are secret, those of numbers and lists are not, so that whoever
  writes them can make a table take hours (``client.table_costs``). So a body that can hold a long table by such keys is looked
  through first, and refused if that would cost too much.
* The same holds for lists, if the type that is asked for makes sets of some.
* What else a type makes of texts, bytes and tables before their hash is asked for (sets of structs, tables by ``UUID`` or
  ``Decimal``) is for whoever asks for it to consider.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from thence.client.table_costs import is_costly

FEW_KEYS: Final = 128
"""A table with so many keys costs little, whatever they are."""

LONG_KEY: Final = 1_000
"""Of lists that may become sets, those with more items in an element are not looked at: there is no room for many."""

MAX_REPEATED: Final = 8
"""How many items such elements may have that are gone through in vain, for each byte of a body."""

MAX_DEPTH: Final = 20_000
"""How deep a body may be nested that is looked through: deeper than any that can be read."""

_TABLE_HEADS: Final = (0xDE, 0xDF)
_SECRET: Final = frozenset([*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB])
"""What texts and bytes begin with."""
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

_LONG_TABLE: Final = re.compile(rb"\xde(?:\0[\x81-\xff]|[^\0].)|\xdf", re.DOTALL)
"""How a table of more than ``FEW_KEYS`` begins, and maybe something else."""

_decode = msgspec.msgpack.decode


def decode_value(body: bytes, as_type: Any = Any) -> Any:
    """Return a body as a value of a type."""
    if len(body) > FEW_KEYS:
        sets = as_type is not Any and _makes_sets(as_type)
        if sets or _LONG_TABLE.search(body):
            check_tables(body, sets=sets)
    try:
        return _decode(body, type=as_type)
    except TypeError as error:
        msgspec.msgpack.Decoder(as_type)  # This raises if it is about the type, and not about the body.
        raise msgspec.DecodeError(str(error)) from None


def _makes_sets(as_type: Any) -> bool:
    """Say whether a value of this type can have a set in it."""
    try:
        return _known_to_make_sets(as_type)
    except TypeError:  # It cannot be remembered, or nothing can be read as it.
        return True


@lru_cache(maxsize=1_000)
def _known_to_make_sets(as_type: Any) -> bool:
    # Imported here: most programs ask for no type, or none of long bodies.
    from msgspec import inspect

    ahead, seen = [inspect.type_info(as_type)], set[int]()
    while ahead:
        one: Any = ahead.pop()
        if isinstance(one, inspect.SetType | inspect.FrozenSetType | inspect.CustomType):
            return True
        if isinstance(one, tuple):
            ahead.extend(one)
        elif isinstance(one, inspect.Type | inspect.Field) and id(one) not in seen:
            seen.add(id(one))
            ahead.extend(getattr(one, name) for name in one.__struct_fields__)
    return False


class _Keys:
    """The keys of one table or set: those that are neither texts nor bytes, and so the same for everybody."""

    def __init__(self, *, as_set: bool) -> None:
        self.as_set = as_set
        self._hashes: list[int] = []
        self._known: set[bytes] = set()
        """What was added to a set: lists that become sets may say the same often. Tables say a key once."""

    def add(self, key: bytes) -> None:
        """Note one more key, as it is read."""
        if self.as_set:
            if key in self._known:
                return
            self._known.add(key)
        with suppress(ValueError, TypeError):  # If it cannot be read, or be a key, neither can the body.
            (read,) = _decode(b"\x81" + key + b"\xc0")
            self._hashes.append(hash(read))

    def check(self) -> None:
        """Refuse the table if it would take long."""
        if len(self._hashes) > FEW_KEYS and is_costly(self._hashes, as_set=self.as_set):
            what = "set" if self.as_set else "table"
            raise msgspec.DecodeError(f"a {what} has {len(self._hashes)} keys with hashes by which it would take long to read")


def check_tables(body: bytes, *, sets: bool = False) -> None:
    """Refuse a body with a table that would take long to make of its keys; ``sets``: any list may become a set."""
    outside: list[tuple[int, _Keys | None]] = []
    left = 1
    """How many items are left of what we are in."""
    keys: _Keys | None = None
    """Of a long table, its keys."""
    at, end = 0, len(body)
    spare = MAX_REPEATED * end
    try:
        while at < end:
            kind = body[at]
            left -= 1
            begin = at
            at, items = _step(body, at)
            is_table = 0x80 <= kind <= 0x8F or kind in _TABLE_HEADS
            # In a table a key is next if an odd number of items is behind it.
            if keys is not None and (keys.as_set or left & 1) and not is_table:
                behind = _behind(body, at, items, LONG_KEY if keys.as_set else end)
                if behind and kind not in _SECRET:
                    keys.add(body[begin:behind])
                elif not behind:
                    spare -= LONG_KEY
                    if spare < 0:
                        raise msgspec.DecodeError("its lists are nested such that it would take long to look through them")
                if not keys.as_set:
                    at, items = behind, 0
            if items:
                outside.append((left, keys))
                left = items
                long = items > (2 * FEW_KEYS if is_table else FEW_KEYS)
                keys = _Keys(as_set=not is_table) if long and (is_table or sets) else None
                if len(outside) > MAX_DEPTH:
                    raise msgspec.DecodeError(f"it is nested more than {MAX_DEPTH} times")
            while not left and outside:
                _check_all((keys,))
                left, keys = outside.pop()
    finally:
        # What cannot be read to its end is read up to there.
        _check_all(one for _, one in [*outside, (left, keys)])


def _check_all(found: Iterable[_Keys | None]) -> None:
    for keys in found:
        if keys is not None:
            keys.check()


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


def _behind(body: bytes, at: int, items: int, most: int) -> int:
    """Return where these items end; 0 if there are more than ``most``, with those in them."""
    end = len(body)
    while items and at < end and most:
        at, more = _step(body, at)
        items += more - 1
        most -= 1
    return at if not items or at >= end else 0
