"""Several people edit one text at the same time, at different sites: a CRDT, whose updates travel by thence.

    python -m examples.editing thence://127.0.0.1:7441 ann "Dear Bob, " bob
    python -m examples.editing thence://127.0.0.1:7444 bob "Dear Ann, " ann

The text is a document of pycrdt (Yjs). It merges whatever updates it is given, in any order; but one that comes before those that
it builds on is put aside, unseen, until they are there. In causal order that never happens.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Self

from pycrdt import Doc, Text, TransactionEvent

import thence


class Editor:
    """One person's copy of the text. Made by ``start``."""

    def __init__(self, client: thence.Client, others: Sequence[str]) -> None:
        self.text = Text()
        self.got = asyncio.Event()
        """Set when something of somebody else came."""
        self.put_aside = 0
        """How many insertions of others could not be shown when they came."""
        self._doc: Doc[Text] = Doc({"text": self.text})
        self._client = client
        self._others = others
        self._is_remote = False

    @classmethod
    async def start(cls, client: thence.Client, others: Sequence[str]) -> Self:
        """Return an editor, when the others can be written to."""
        for name in others:
            await client.known(name)
        editor = cls(client, others)
        editor._doc.observe(editor._changed)
        client.on_message(editor._take)
        return editor

    def _changed(self, event: TransactionEvent) -> None:
        """The text has changed: if we did it, tell the others."""
        if not self._is_remote:
            self._client.post(self._others, event.update)

    def _take(self, message: thence.Message) -> None:
        """Somebody else changed it."""
        before = self._doc.get_state()
        self._is_remote = True
        self._doc.apply_update(message.body)
        self._is_remote = False
        self.put_aside += self._doc.get_state() == before
        self.got.set()


async def main(url: str, name: str, words: str, *others: str) -> None:
    """Write some words at the front, wait for what somebody else writes, and show what came of both."""
    async with thence.connect(url, name) as client:
        editor = await Editor.start(client, others)
        editor.text.insert(0, words)
        await editor.got.wait()
        print(editor.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
