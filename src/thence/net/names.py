"""What clients and agents can be called: such that whoever writes to one, on a command line too, can say whom.

Rules:

* Both sides ask here, so that they agree: the client before it calls anybody, the server whoever calls.
* A client that has its mailbox already keeps its name, whatever was allowed when it came.
* The empty name is that of tools which only ask questions. Nobody can write to it: ``connect`` refuses it, and a server takes
  nothing but questions from whoever has it.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category, is_normalized, normalize

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

UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    *map(chr, range(0xFE00, 0xFE0E)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
"""Characters that show nothing, for the same reason, beside those of the category ``UNSEEN_CATEGORY``."""
UNSEEN_CATEGORY: Final = "Cf"
JOINERS: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""Characters that show nothing and change the one before them: languages and pictures are written with them, ASCII is not."""


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
    elif not DIRECTIONS.isdisjoint(name):
        why = "it has marks of direction, which make it look like another one"
    elif not name.isascii() and _has_unseen(name):
        why = "it has characters that show nothing, which make it look like another one"
    elif not is_normalized("NFC", name):
        why = f"it looks like {normalize('NFC', name)!r}, which is written in other characters (NFC)"
    return f"{name!r} cannot be a name: {why}" if why else ""


def _has_unseen(name: str) -> bool:
    """Say whether a name has characters that show nothing, and need not be there."""
    before = ""
    for item in name:
        if item in JOINERS:
            if before.isascii() or before in JOINERS:  # Also at the beginning.
                return True
        elif item in UNSEEN or category(item) == UNSEEN_CATEGORY:
            return True
        before = item
    return False


def checked_name(name: object) -> str:
    """Return the name, if somebody can be called so."""
    reason = objection_to_name(checked_length(name))
    if reason:
        raise UsageError(reason)
    return str(name)


def is_whole(text: str) -> bool:
    """Say whether a text can travel: halves of characters, as ``json`` and names of files may have them, cannot be written."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_length(name: object) -> str:
    """Return what may be a name by its length, and may be that of somebody whom others let in."""
    if not isinstance(name, str) or not is_whole(name):
        raise UsageError(f"{name!r} is no name; it must be text, and of whole characters")
    if len(name) > MAX_NAME_CHARACTERS:
        raise UsageError(objection_to_name(name))
    return name
