"""One Spark session for all tests that need one, made when the first of them asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from thence.pipeline.session import spark_session

    session = spark_session("local[2]")
    yield session
    session.stop()
