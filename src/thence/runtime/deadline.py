"""A time limit whose error says what did not happen: ``asyncio.timeout`` raises one without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def within(seconds: float | None, otherwise: str) -> AsyncIterator[None]:
    """Raise ``TimeoutError`` with what is so ``otherwise``, if the block takes longer than so many seconds. None: never."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # Somebody else's, who has said more.
        raise TimeoutError(f"{otherwise} within {seconds:g} s") from None
