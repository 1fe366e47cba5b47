"""The news of views (docs/removal.md) at an endpoint: which view it was told of last, and who wants to know.

What cannot be read is no news: no server of ours writes such, and whoever did must not stop what comes behind.
"""

from __future__ import annotations

from collections.abc import Callable

from thence.core.views import NewView
from thence.errors import MalformedFrame, UsageError
from thence.runtime.letters import Message

ViewHandler = Callable[[NewView], object]


class ViewNews:
    """See the module's text."""

    def __init__(self) -> None:
        """There was no change yet."""
        self.view: NewView | None = None
        """The last one; None: there was none since the endpoint was made."""
        self._handler: ViewHandler | None = None

    def tell(self, handler: ViewHandler) -> None:
        """Tell ``handler`` from now on."""
        if self._handler is not None:
            raise UsageError("there is a handler of views already")
        self._handler = handler

    def came(self, message: Message, unreadable: Callable[[MalformedFrame], None]) -> object:
        """Tell the handler the news that a message has, and return what it returns; if there is none, ``unreadable`` is told."""
        try:
            self.view = message.value(NewView)
        except MalformedFrame as error:
            unreadable(error)
            return None
        return None if self._handler is None else self._handler(self.view)
