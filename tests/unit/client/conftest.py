"""The endpoint that tests of clients share."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.played import Played


@pytest.fixture
async def me() -> Played:
    """Return an endpoint with a played link. What its loop complains of is for the test to see, not for standard error."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    return Played()
