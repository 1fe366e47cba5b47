"""Text from outside, made such that it can be shown: on a terminal, in a log, in JSON.

Names, reasons, bodies and addresses come from servers, clients and files that may mean ill. On a terminal a control character is
a command: it moves the cursor, changes the title, writes what was never typed. A mark of direction makes a name look like
another one.

Rules:

* What Python does not call printable is written escaped: C0 and C1 controls with ESC among them, marks of direction and other
  characters that cannot be seen, ends of lines, halves of characters.
* What the encoding of a terminal lacks is escaped too (``escape_unwritable``), and does not end whoever shows it.
* The escaped text is printable. So what was made printable is not changed a second time.
* The command line does this where it writes (``cli.console``), and the log where lines are made (``runtime.logs``).
"""

from __future__ import annotations

from typing import Final

LINES: Final = "\n\t"
"""What a text of several lines may have beside what is printable."""


def printable(text: str, keep: str = "") -> str:
    """Return a text with everything escaped that cannot be printed, but for the characters in ``keep``."""
    if text.isprintable():
        return text
    return "".join(item if item.isprintable() or item in keep else _escaped(item) for item in text)


def said_by(error: BaseException, most_characters: int) -> str:
    """Return what an error says, such that it can be shown and kept.

    The errors of programs say anything: half a character, which cannot be written, or megabytes. Some raise when they are asked.
    """
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  It is the code of others that is asked, and it has failed already.
        text = "what it says cannot be made a text"
    return printable(text[:most_characters], LINES)[:most_characters]


def printable_json(text: str) -> str:
    """Return JSON that says the same, with everything escaped that cannot be printed; the spaces between values stay."""
    if text.isprintable():
        return text
    return "".join(item if item.isprintable() or item in LINES else _escaped_in_json(item) for item in text)


def escape_unwritable(error: UnicodeError) -> tuple[str, int]:
    """Return what to write for characters that an encoding lacks, as ``codecs.register_error`` wants it; JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_escaped_in_json, error.object[error.start : error.end])), error.end


def _escaped(item: str) -> str:
    return ascii(item)[1:-1]


def _escaped_in_json(item: str) -> str:
    """Return a character of a JSON string as JSON has it: above U+FFFF as two halves."""
    written = item.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{written[at]:02x}{written[at + 1]:02x}" for at in range(0, len(written), 2))
