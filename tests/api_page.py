"""Writes docs/api.md from the code: every public name, with its signature and what it does.

``python -m tests.api_page`` writes the page; a test compares.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import thence

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

INTRODUCTION = """# API

Every public name of `import thence`, as the code says it. Written by `python -m tests.api_page`; a test holds it to the code.
[Quickstart](quickstart.md) shows them at work, and [guarantees](guarantees.md#servers-and-clients) says what they promise.
Errors have [a page of their own](errors.md).
"""


def page() -> str:
    """Return the page."""
    names = [name for name in thence.__all__ if not name.startswith("_")]
    things = [(name, getattr(thence, name)) for name in names]
    parts = [INTRODUCTION]
    parts += [_function(name, thing) for name, thing in things if inspect.isfunction(thing)]
    parts += [_class(name, thing) for name, thing in things if inspect.isclass(thing) and not issubclass(thing, Exception)]
    parts += [f"## `{name}`\n\n{_text(type(thing))}\n" for name, thing in things if name == "EVERYONE"]
    return "\n".join(parts)


def _class(name: str, thing: type) -> str:
    lines = [f"## `class {name}`\n", _text(thing), ""]
    if "__init__" in vars(thing) and name == "Member":
        lines += [f"`{name}{_signature(thing)}`\n", _text(vars(thing)["__init__"]), ""]
    lines += [line for member, value in _members(thing) for line in (_entry(member, value), "")]
    return "\n".join(lines)


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Give what a class has for its users, its own first and then what it has from others of ours."""
    seen: set[str] = set()
    for owner in thing.__mro__:
        if owner.__module__.startswith("thence"):
            for member, value in vars(owner).items():
                documented = isinstance(value, property) or inspect.isfunction(value)
                if documented and not member.startswith("_") and member not in seen and member not in OUTLET:
                    seen.add(member)
                    yield member, getattr(thing, member) if inspect.isfunction(value) else value


OUTLET = {"accepted", "undeliverable", "deliver", "damaged", "subscribed", "answered", "lost", "waiting"}
"""What an embedded member has for its own session, and the agents of a client for the client, not for users."""


def _entry(member: str, value: Any) -> str:
    if isinstance(value, property):
        return f"* `{member}`: {_text(value.fget)}"
    awaited = "await " if inspect.iscoroutinefunction(value) else ""
    return f"* `{awaited}{member}{_signature(value)}`: {_text(value)}"


def _function(name: str, thing: Any) -> str:
    return f"## `{name}{_signature(thing)}`\n\n{_text(thing)}\n"


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    shown = str(signature.replace(parameters=parameters))
    return re.sub(r"'|thence\\.runtime\\.\\w+\\.", "", shown)


def _text(thing: Any) -> str:
    """Return a docstring as one paragraph after the other; one that was left to an abstract method is found there."""
    text = inspect.getdoc(thing) or ""
    if text.startswith("See the module's text."):
        about = inspect.getdoc(inspect.getmodule(thing)) or ""
        text = about.partition("\n\n")[0] + text.removeprefix("See the module's text.")
    return "\n".join(re.sub(r"``", "`", line) for line in text.splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
