"""The site builds without a warning, loads nothing from elsewhere, and its reference has every public name."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import thence

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(to)]
    built = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return to


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = [(site / "reference" / f"{name}.html").read_text(encoding="utf-8") for name in ("api", "errors")]
    shown = {name.rpartition(".")[2] for page in pages for name in re.findall(r'<h[23] id="(thence\.[\w.]+)"', page)}
    assert shown >= {name for name in thence.__all__ if not name.startswith("_")}
    errors = re.findall(r"^class (\w+)\(", (ROOT / "src/thence/errors.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert shown >= set(errors)


def test_the_reference_says_what_each_thing_is(site: Path) -> None:
    """A docstring on the page stands by itself; an error says whose mistake it is, and whether the thing may have happened."""
    api, errors = ((site / "reference" / f"{name}.html").read_text(encoding="utf-8") for name in ("api", "errors"))
    assert "the module's text" not in html.unescape(api)
    assert 'id="thence.TlsFiles.authority"' in api
    assert 'id="thence.errors.Busy.happened"' in errors


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    loads = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)\s*=\s*["']?(?:https?:)?//[^>]*>""")
    assert [found for page in pages for found in loads.findall(page.read_text(encoding="utf-8"))] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not [found for style in styles for found in re.findall(r"(?:@import\s+|url\()\s*[\"']?(?:https?:)?//[^)\"']*", style)]
