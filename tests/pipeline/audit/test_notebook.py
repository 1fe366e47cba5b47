"""The notebook for Spark people runs, cell by cell, and is the page beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.pages.notebook import HOW_TO, NOTEBOOKS, notebook_of
from tests.test_docs import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thence.pipeline.audit import Audit

(NAME,) = NOTEBOOKS


def test_the_notebook_is_its_page() -> None:
    assert read(f"docs/how-to/{NAME}.ipynb") == notebook_of(read(f"docs/how-to/{NAME}.md")), (
        "python -m tests.support.pages.notebook"
    )


@pytest.mark.spark
def test_the_notebook_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    known: dict[str, Any] = {}
    for cell in json.loads((HOW_TO / f"{NAME}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{NAME}.ipynb, {cell['id']}", "exec"), known)
    slow = [n for n in range(300) if n % 12 == 8]  # an order for the roof, each fourth of them
    (room,) = known["by_room"].to_dict("records")
    assert room == {"room": "Roof", "violations": len(slow), "price": sum(20 + n % 7 for n in slow)}
    assert [bar.get_height() for bar in known["axes"].patches] == [len(slow)]
    assert "paid-8" in capsys.readouterr().out
    found: Audit = known["found"]
    assert not found.rows.storageLevel.useMemory
    for view in ("orders", "events"):
        spark.catalog.dropTempView(view)
    plt.close("all")
