"""Pages that are notebooks too: the page is the source, and the notebook beside it has its text and code, without outputs.

python -m tests.support.pages.notebook      write the notebooks
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

HOW_TO: Final = Path(__file__).resolve().parents[3] / "docs" / "how-to"
NOTEBOOKS: Final = ("audit-notebook",)
CODE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells_of(page: str) -> list[dict[str, Any]]:
    """Return the cells of a page: text and code by turns."""
    found: list[dict[str, Any]] = []
    for at, part in enumerate(CODE.split(page)):
        lines = part.strip("\n").splitlines(keepends=True)
        kind = "code" if at % 2 else "markdown"
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{at}", "metadata": {}, "source": lines}
        if at % 2:
            cell |= {"execution_count": None, "outputs": []}
        if lines:
            found.append(cell)
    return found


def notebook_of(page: str) -> str:
    """Return a page as a notebook."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells_of(page), "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in NOTEBOOKS:
        text = notebook_of((HOW_TO / f"{name}.md").read_text(encoding="utf-8"))
        (HOW_TO / f"{name}.ipynb").write_text(text, encoding="utf-8")
