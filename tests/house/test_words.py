"""No retired word in names, docstrings, comments, messages, help and pages, but where ``tests/house/words.py`` lets it be.

String literals without a space are keys, not sentences, and are not read. Neither are the targets of links. ``CHANGELOG.md``
tells of what was. Names are split into words: ``MailboxFull`` and ``mailbox_full`` are both "mailbox full".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.house.words import ALLOWED, KEYS, LEFT, PAGE, RETIRED, SECTIONS, glossary

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = "to write it anew: .venv/bin/python -m tests.house.words"
KEY: Final = re.compile("|".join(KEYS))
ANY: Final = re.compile(rf"(?<![a-z])(?:{'|'.join(one.pattern for one in RETIRED.values())})(?![a-z])")
"""Finds whether there is anything to look for more closely."""
PATTERNS: Final = {word: re.compile(rf"(?<![a-z])(?:{one.pattern})(?![a-z])") for word, one in RETIRED.items()}


class Reading(NamedTuple):
    """One name, or one piece of text."""

    line: int
    text: str
    is_name: bool


class Use(NamedTuple):
    """A retired word where it stands."""

    word: str
    place: str
    text: str


@cache
def split(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).strip()


def names(nodes: Sequence[ast.AST]) -> Iterator[Reading]:
    """Give the identifiers of a module; of those that are used, the ones that are attributes or bound here."""
    for node in nodes:
        line = getattr(node, "lineno", 0)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield Reading(line, split(name), True)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield Reading(line, split(name), True)
            case _:
                pass


def sentences(nodes: Sequence[ast.AST]) -> Iterator[Reading]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\S\s+\S", node.value):
            for offset, line in enumerate(node.value.splitlines()):
                yield Reading(node.lineno + offset, line, False)


def comments(source: str) -> Iterator[Reading]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Reading(token.start[0], token.string, False)


def readings(path: str, text: str) -> Iterator[Reading]:
    """Give what is read of a file: its name, and what is in it."""
    yield Reading(0, split(Path(path).stem), True)
    if path.endswith(".py"):
        nodes = list(ast.walk(ast.parse(text)))
        yield from names(nodes)
        yield from sentences(nodes)
        yield from comments(text)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            yield Reading(number, re.sub(r"\]\([^)]*\)", "]", line), False)


def uses(path: str, text: str) -> Iterator[Use]:
    """Give the retired words of a file."""
    for reading in readings(path, text):
        said = (reading.text if reading.is_name else KEY.sub(" ", reading.text)).lower()
        if not ANY.search(said):
            continue
        for word, pattern in PATTERNS.items():
            if reading.is_name or not RETIRED[word].only_in_names:
                for found in pattern.finditer(said):
                    yield Use(word, f"{path}:{reading.line}", said[max(found.start() - 40, 0) : found.end() + 40].strip())


def is_allowed(use: Use) -> bool:
    return any(use.word == one.word and use.place.startswith(one.where) for one in ALLOWED)


def files() -> list[Path]:
    pages = [page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if page not in (ROOT / "CHANGELOG.md", PAGE)]
    return sorted([*pages, *(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".toml"})])


@pytest.fixture(scope="module")
def found() -> list[Use]:
    return [use for path in files() for use in uses(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))]


def test_no_retired_word_but_those_that_are_left(found: list[Use]) -> None:
    left = {one.word: one.uses for one in LEFT}
    counted = Counter(use.word for use in found if not is_allowed(use))
    too_many = {word for word, count in counted.items() if count > left.get(word, 0)}
    assert {word: (counted[word], left.get(word, 0)) for word in too_many} == {}, [
        use for use in found if use.word in too_many and not is_allowed(use)
    ]


def test_every_exception_is_needed(found: list[Use]) -> None:
    assert [one for one in LEFT if not any(use.word == one.word and not is_allowed(use) for use in found)] == []
    assert [
        (one.word, where)
        for one in ALLOWED
        for where in one.where
        if not any(use.word == one.word and use.place.startswith(where) for use in found)
    ] == []
    pages = "".join(path.read_text(encoding="utf-8") for path in files())
    assert [key for key in KEYS if not re.search(key, pages)] == []
    assert all(one.why for one in LEFT)
    assert all(one.why for one in ALLOWED)


def test_every_retired_word_has_a_successor() -> None:
    named = [word for words in SECTIONS.values() for one in words for word in one.retired]
    assert sorted(named) == sorted(RETIRED)
    ours = [one.word for words in SECTIONS.values() for one in words]
    assert len(ours) == len(set(ours))


def test_the_glossary_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == glossary(), COMMAND


@pytest.mark.parametrize(
    ("path", "text", "word"),
    [
        ("src/planted.py", "class NeighbourList: ...\n", "neighbour"),
        ("src/planted.py", "def open_box(): ...\n", "box"),
        ("src/planted.py", "def f(bundle): ...\n", "bundle"),
        ("src/planted.py", "node.told(1)\n", "told"),
        ("src/planted.py", "f(taken=1)\n", "taken"),
        ("src/planted.py", '"""Ask the office."""\n', "office"),
        ("src/planted.py", "x = 1  # behind the door\n", "door"),
        ("src/planted.py", 'raise E(f"{n} letters wait")\n', "letter"),
        ("src/planted.py", 'help = "How many confirmations to wait for."\n', "confirm"),
        ("src/planted.py", 'log.info("holding %s for dead", peer)\n', "held for dead"),
        ("src/desk.py", "", "desk"),
        ("src/planted.toml", 'what = "a box"\n', "box"),
        ("README.md", "# Evolution\n", "evolution"),
        ("README.md", "| a publication | b |\n", "publication"),
    ],
)
def test_a_planted_word_is_found(path: str, text: str, word: str) -> None:
    assert [use.word for use in uses(path, text)] == [word]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/planted.py", "class MailboxFull: ...\n"),
        ("src/planted.py", '"""Who is told that it was taken."""\n'),
        ("src/planted.py", 'KEY = "letters"\n'),
        ("src/planted.py", "def dead_letters(): ...\n"),
        ("README.md", "A dead letter, `thence_neighbour_up`, and [acks](confirmation.md).\n"),
        ("README.md", "The first letter of a name, and a sandbox.\n"),
    ],
)
def test_what_only_looks_like_one_is_not(path: str, text: str) -> None:
    assert list(uses(path, text)) == []


def test_a_paper_is_quoted_in_its_own_words() -> None:
    assert is_allowed(Use("confirm", "docs/research/studies.md:1", ""))
    assert not is_allowed(Use("confirm", "docs/how-to/servers.md:1", ""))
