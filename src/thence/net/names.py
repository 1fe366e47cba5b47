"""What clients and agents can be called: such that whoever writes to one, on a command line too, can say whom.

Rules:

* Both sides ask here, so that they agree: the client before it calls anybody, the server whoever calls.
* A client that has its mailbox already keeps its name, whatever was allowed when it came.
* The empty name is that of tools which only ask questions. Nobody can write to it: ``connect`` refuses it, and a server takes
  nothing but questions from whoever has it.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import UsageError

ALL: Final = "everyone"
"""The word that stands for all, where a person writes to whom."""
TOPIC_MARK: Final = "#"
"""What a topic begins with, where a person writes to whom."""
RETURNED: Final = f"{TOPIC_MARK}undeliverable:"
"""What the sender of a message that has come back begins with (``node.messages.returns``); the name that it was for follows."""
SEPARATOR: Final = ","
"""What stands between several names there."""
UNWRITABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""The categories of characters that no name has: controls, halves of characters, and ends of lines."""
DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks of direction, which no name has either: they make it look like another one."""

UNSEEN: Final = frozenset("\u00ad\u034f\u115f\u1160\u180e\u200b\u2060\u2061\u2062\u2063\u2064\u2800\u3164\ufeff\uffa0")
"""Characters that show nothing, for the same reason. The two joiners, which some languages write with, are none of them."""


MAX_TOPIC_CHARACTERS: Final = 200


def objection_to_name(name: str) -> str:
    """Say why nobody can be called so; nothing if that can be."""
    if len(name) > MAX_NAME_CHARACTERS:
        return f"a name of {len(name)} characters; MAX_NAME_CHARACTERS is {MAX_NAME_CHARACTERS}"
    why = ""
    if not name:
        why = "it is empty"
    elif name == ALL:
        why = "the word stands for all clients"
    elif name.startswith(TOPIC_MARK):
        why = f"what begins with {TOPIC_MARK} is a topic"
    elif SEPARATOR in name:
        why = "a comma stands between several names"
    elif name != name.strip():
        why = "it begins or ends with a space"
    elif any(category(character) in UNWRITABLE for character in name):
        why = "it has characters that cannot be written"
    elif not UNSEEN.isdisjoint(name):
        why = "it has characters that show nothing, which make it look like another one"
    elif not DIRECTIONS.isdisjoint(name):
        why = "it has marks of direction, which make it look like another one"
    return f"{name!r} cannot be a name: {why}" if why else ""


def checked_name(name: object) -> str:
    """Return the name, if somebody can be called so."""
    reason = objection_to_name(checked_length(name))
    if reason:
        raise UsageError(reason)
    return str(name)


def checked_length(name: object) -> str:
    """Return what may be a name by its length, and may be that of somebody whom others let in."""
    if not isinstance(name, str):
        raise UsageError(f"{name!r} is no name; it must be text")
    if len(name) > MAX_NAME_CHARACTERS:
        raise UsageError(objection_to_name(name))
    return name
