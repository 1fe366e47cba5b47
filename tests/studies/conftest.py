"""The Spark session of the pipeline's tests is that of the studies too."""

from __future__ import annotations

from tests.pipeline.conftest import spark

__all__ = ["spark"]
