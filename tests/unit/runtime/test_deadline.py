"""A time limit says what did not happen."""

from __future__ import annotations

import asyncio

import pytest

from thence.runtime.deadline import within


async def test_who_is_late_is_told_what_did_not_happen() -> None:
    with pytest.raises(TimeoutError, match=r"^no answer of s1 within 0.01 s$"):
        async with within(0.01, "no answer of s1"):
            await asyncio.sleep(60)


async def test_a_time_limit_inside_says_its_own() -> None:
    with pytest.raises(TimeoutError, match=r"^another one$"):
        async with within(60, "no answer of s1"):
            raise TimeoutError("another one")


async def test_without_a_limit_nobody_is_late() -> None:
    async with within(None, "no answer of s1"):
        await asyncio.sleep(0)
