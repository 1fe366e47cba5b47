"""What a client can be called. The server has the same limit; here it is named before anybody is called."""

from __future__ import annotations

from thence.core.messages import MAX_NAME_CHARACTERS
from thence.errors import UsageError


def checked_name(name: object) -> str:
    """Return the name, if it can be one; the empty name is that of clients which only ask questions."""
    if not isinstance(name, str):
        raise UsageError(f"{name!r} is no name; it must be text")
    if len(name) > MAX_NAME_CHARACTERS:
        raise UsageError(f"a name of {len(name)} characters; MAX_NAME_CHARACTERS is {MAX_NAME_CHARACTERS}")
    return name
