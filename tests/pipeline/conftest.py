"""The one Spark session of a test run, made when the first test asks for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from thence.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        # The gateway to Java leaves its sockets and its process to the end of the interpreter.
        warnings.simplefilter("ignore", ResourceWarning)
        session = spark_session("local[2]")
        yield session
        session.stop()
