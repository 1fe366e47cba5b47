"""What a source is and how it will be read, decided before it is: by what was said, or else by names and first lines.

Rules:

* What is on this machine is looked at without Spark, so that an import that cannot be is refused before Spark starts. Elsewhere
  Spark gives the names and the first lines; what is made of them is the same.
* The format is guessed where it is not named; what was guessed is said. A mapping is never guessed: it decides what a trace
  means. The presets that would read the source are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from thence.errors import ConfigError, TraceError
from thence.pipeline.importers import logtext
from thence.pipeline.importers.mapped.fields import Fields, decode_json
from thence.pipeline.importers.mapped.mapping import Mapping, read_mapping
from thence.pipeline.importers.mapped.ndjson import document_rows
from thence.pipeline.importers.mapped.presets import preset_names, preset_path
from thence.pipeline.importers.native import decode_house_line
from thence.pipeline.importers.notes import caveats
from thence.pipeline.importers.sources import (
    FORMATS,
    JSONL,
    NDJSON,
    PARQUET,
    SHIVIZ,
    SourceFile,
    local_files,
    local_head,
    of_format,
)
from thence.pipeline.importers.staged import EVENT
from thence.trace.files import PARQUET_ENDING, PARQUET_MAGIC

_JSON_BEGINS: Final = re.compile(r"\s*(\{|\[\s*[{\[])")

Head = Callable[[Sequence[SourceFile]], str]
"""Returns the first lines of the first of these files that hold anything."""


class SourceOptions(NamedTuple):
    """What was said about a source."""

    format: str | None = None
    pattern: str | None = None
    delimiter: str | None = None
    mapping: str | None = None
    """The path of a mapping, or the name of one that comes with thence."""

    @classmethod
    def of(cls, format: str | None, pattern: str | None, delimiter: str | None, mapping: str | None, preset: str | None) -> Self:  # noqa: A002
        """Return what the options of a command say."""
        if preset is not None and mapping is not None:
            raise ConfigError("--preset and --mapping: give one of them")
        return cls(format, pattern, delimiter, mapping if preset is None else preset_path(preset))

    def read_mapping(self) -> Mapping | None:
        """Return the mapping that was named, if one was."""
        if self.mapping is None:
            return None
        return read_mapping(preset_path(self.mapping) if self.mapping in preset_names() else self.mapping)


class ImportPlan(NamedTuple):
    """How a source will be read."""

    format: str
    guessed: str | None = None
    grammar: logtext.Grammar | None = None
    mapping: Mapping | None = None

    @property
    def unit(self) -> str:
        """Return what of the source is counted."""
        whole = self.mapping is not None and self.mapping.documents
        return "row" if self.format == PARQUET else "record" if whole else "line"

    def caveats(self, place: str) -> list[str]:
        """Say what cannot be judged in what comes of the source at this place, and why."""
        if self.format == PARQUET:
            return caveats(place)
        mapping = read_mapping(preset_path(SHIVIZ)) if self.format == SHIVIZ else self.mapping
        return [] if mapping is None else mapping.in_doubt()


def check(source: str, options: SourceOptions) -> None:
    """Refuse what cannot be imported, without Spark; what is not on this machine is judged by its options alone."""
    options.read_mapping()
    files = local_files(source)
    if files:
        plan(source, files, options, local_head)


def expected_caveats(source: str, options: SourceOptions) -> list[str]:
    """Say what cannot be judged in a Parquet trace, or in one that a mapping makes of a source."""
    mapping = options.read_mapping()
    return caveats(source) if mapping is None else mapping.in_doubt()


def plan(source: str, files: Sequence[SourceFile], options: SourceOptions, head: Head) -> ImportPlan:
    """Decide how a source is read."""
    mapping = options.read_mapping()
    if options.format is not None and options.format not in FORMATS:
        raise ConfigError(f"format {options.format}: not known; the formats are {', '.join(FORMATS)}")
    given = [(SHIVIZ, "regular expression")] if options.pattern or options.delimiter else []
    given += [] if mapping is None else [(mapping.format, "mapping")]
    chosen, words = options.format or (given[0][0] if given else None), None
    for wanted, what in given:
        if wanted != chosen:
            raise ConfigError(f"format {chosen}: takes no {what}")
    if chosen is None:
        chosen, words = _guessed(source, files, head)
    if chosen == NDJSON and mapping is None:
        raise ConfigError(_mapping_is_missing(source, head(of_format(files, NDJSON)[0])))
    if chosen == SHIVIZ:
        return _shiviz_plan(source, head(of_format(files, SHIVIZ)[0]), words, options)
    return ImportPlan(chosen, words, mapping=mapping if chosen == NDJSON else None)


def _guessed(source: str, files: Sequence[SourceFile], head: Head) -> tuple[str, str]:
    """Return the format that a source seems to have, and how that shows."""
    if any(file.path.endswith(PARQUET_ENDING) for file in files):
        return PARQUET, f"names end in {PARQUET_ENDING}"
    text = head(files)
    if text.startswith(PARQUET_MAGIC.decode()):
        return PARQUET, "it begins like Parquet"
    lines = [line.encode(errors="backslashreplace") for line in text.splitlines() if line.strip()]
    if not lines:
        raise TraceError(f"{source}: nothing in there")
    if any(map(_is_event, lines)):
        return JSONL, "lines are events of a trace"
    if 2 * sum(map(_is_object, lines)) > len(lines):
        return NDJSON, "lines are JSON objects"
    return (NDJSON, "it begins like JSON") if _JSON_BEGINS.match(text) else (SHIVIZ, "lines are text")


def _is_event(line: bytes) -> bool:
    try:
        return bool(decode_house_line(line, {}))
    except TraceError:
        return False


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(decode_json(line), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _mapping_is_missing(source: str, head: str) -> str:
    """Say so, with the presets that make events and no bad rows of the first lines."""
    content = head.encode(errors="backslashreplace")
    fitting = []
    for name in preset_names():
        mapping = read_mapping(preset_path(name))
        if mapping.format == NDJSON:
            found = {row["what"] for row in document_rows("", content, Fields(mapping))}
            fitting += [f"--preset {name} ({mapping.about})"] if found >= {EVENT} and "bad" not in found else []
    hint = f"{' or '.join(fitting)} fits" if fitting else f"presets are {', '.join(preset_names())}"
    return (
        f"{source}: JSON that is no trace needs a mapping (--mapping FILE or --preset NAME), which says where the columns come "
        f"from; {hint}"
    )


def _shiviz_plan(source: str, text: str, words: str | None, options: SourceOptions) -> ImportPlan:
    ending = options.delimiter or logtext.DEFAULT_DELIMITER
    logtext.compiled(ending)
    if options.pattern is not None:
        logtext.event_pattern(options.pattern)
        return ImportPlan(SHIVIZ, words, logtext.Grammar(options.pattern, ending))
    brought = logtext.header(text)
    if brought is not None:
        logtext.event_pattern(brought[0].pattern)
        logtext.compiled(brought[0].delimiter)
        return ImportPlan(SHIVIZ, "the file begins with its regular expression")
    guess = logtext.guess(text, ending)
    if guess is None:
        raise TraceError(f"{source}: no events found; give the regular expression of the log (--pattern)")
    return ImportPlan(SHIVIZ, f"looks like {guess[0]}", logtext.Grammar(guess[1], ending))
