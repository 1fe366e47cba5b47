"""Where a person types while lines of others come in: on a terminal, a prompt that stays below them; else plain lines.

Rules:

* ``Typing`` is pure: keys go in, finished lines come out. The terminal is read and drawn around it.
* On a terminal keys are read one by one, since the half-written line has to be drawn again below each line that comes. The
  terminal is given back as it was, whatever happens.
* Elsewhere a thread reads (``standard_input``): files cannot be waited for.
* A line holds at most ``MAX_LINE_CHARACTERS``; what is typed beyond them is not taken.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from rich.cells import cell_len
from rich.text import Text

from thence.cli import console
from thence.cli.messages.standard_input import pieces

MAX_LINE_CHARACTERS: Final = 2_000
READ_BYTES: Final = 4_096

ESCAPE, DELETE, BACKSPACE, KILL_LINE, KILL_WORD, END = "\x1b", "\x7f", "\x08", "\x15", "\x17", "\x04"
CLEAR: Final = "\r\x1b[K"


class Typing:
    """A line that is being typed."""

    def __init__(self) -> None:
        """Nothing is typed yet."""
        self.text = ""
        self._escaped = ""
        """What came of a key that sends several characters, such as an arrow; those do nothing here."""

    def press(self, keys: str) -> Iterator[str | None]:
        """Take keys; give the lines that they finish. None: whoever types has pressed Ctrl-D on an empty line."""
        for key in keys:
            if self._escaped:
                self._skip(key)
            elif key == ESCAPE:
                self._escaped = key
            elif key in "\r\n":
                line, self.text = self.text, ""
                yield line
            elif key == END and not self.text:
                yield None
            else:
                self._edit(key)

    def _skip(self, key: str) -> None:
        self._escaped += key
        opening = self._escaped[1:2] in {"[", "O"} and len(self._escaped) == 2
        if not opening and (self._escaped[1] != "[" or "@" <= key <= "~"):
            self._escaped = ""

    def _edit(self, key: str) -> None:
        if key in DELETE + BACKSPACE:
            self.text = self.text[:-1]
        elif key == KILL_LINE:
            self.text = ""
        elif key == KILL_WORD:
            self.text = self.text.rstrip().rpartition(" ")[0]
            self.text += " " if self.text else ""
        elif key.isprintable() and len(self.text) < MAX_LINE_CHARACTERS:
            self.text += key


class Input(Protocol):
    """What gives the lines of a person and shows those of others."""

    def lines(self) -> AsyncIterator[str]:
        """Give what is typed, line by line, until its end."""

    def show(self, text: Text) -> None:
        """Show a line."""

    def note(self, text: str) -> None:
        """Show what is no line of anybody."""

    def label(self, text: str) -> None:
        """Say what stands before the line that is being typed."""


@contextmanager
def opened() -> Iterator[Input]:
    """Give what is there: a terminal in both directions, or else streams."""
    if not (sys.stdin.isatty() and console.out.is_terminal):
        yield Streams()
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    terminal = Terminal(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield terminal
    finally:
        console.out.file.write(CLEAR)
        console.out.file.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Terminal:
    """A prompt below what is shown."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` is that of the keys."""
        self._descriptor = descriptor
        self._typing = Typing()
        self._label = ""

    async def lines(self) -> AsyncIterator[str]:
        """Give what is typed, line by line, until Ctrl-D or the end of the terminal."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while pressed := await self._pressed():
            for line in self._typing.press(decoder.decode(pressed)):
                if line is None:
                    return
                self._draw()
                yield line
            self._draw()

    async def _pressed(self) -> bytes:
        """Wait for keys; nothing: the terminal is gone."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        with suppress(OSError):
            return os.read(self._descriptor, READ_BYTES)
        return b""

    def show(self, text: Text) -> None:
        """Show a line above the prompt."""
        console.out.file.write(CLEAR)
        console.out.print(text)
        self._draw()

    def note(self, text: str) -> None:
        """Show what is no line of anybody."""
        self.show(Text(console.plain(text), style="dim"))

    def label(self, text: str) -> None:
        """Say what stands before the line that is being typed."""
        self._label = text
        self._draw()

    def _draw(self) -> None:
        typed, room = self._typing.text, max(1, console.out.width - cell_len(self._label) - 1)
        while cell_len(typed) > room:
            typed = typed[1:]  # The end of a long line is what matters.
        console.out.file.write(f"{CLEAR}{self._label}{typed}")
        console.out.file.flush()


class Streams:
    """Lines from standard input, results to standard output, everything else to standard error."""

    async def lines(self) -> AsyncIterator[str]:
        """Give the lines of standard input."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        begun = ""
        async for piece in pieces():
            *whole, begun = (begun + decoder.decode(piece)).split("\n")
            for line in whole:
                yield line[:MAX_LINE_CHARACTERS]
            begun = begun[:MAX_LINE_CHARACTERS]
        if begun:
            yield begun

    def show(self, text: Text) -> None:
        """Print a line."""
        console.say(text.plain)
        console.out.file.flush()

    def note(self, text: str) -> None:
        """Say it beside."""
        console.err.print(console.plain(text), soft_wrap=True)

    def label(self, text: str) -> None:
        """Show nothing: nobody types here."""
