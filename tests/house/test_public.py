"""What `import thence` costs and gives: little is loaded, and public names are pinned."""

from __future__ import annotations

import tomllib
from pathlib import Path

import thence
from tests.house.tree import ROOT, run_python

MAX_IMPORTED_MODULES = 40
HEAVY = ("asyncio", "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer")


def test_import_thence_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = run_python("import sys, thence; print(*sorted({name.split('.')[0] for name in sys.modules}))", tmp_path)
    assert "thence" in loaded.split()
    assert set(HEAVY).isdisjoint(loaded.split())


def test_import_thence_loads_little(tmp_path: Path) -> None:
    """What takes time is what is loaded; the time itself says more of the machine."""
    code = """
        import sys
        before = set(sys.modules)
        import thence
        print(len(set(sys.modules) - before))
        """
    assert 0 < int(run_python(code, tmp_path)) <= MAX_IMPORTED_MODULES


def test_public_names_are_pinned() -> None:
    assert thence.__all__ == [
        "EVERYONE",
        "Agent",
        "Agents",
        "BlockingClient",
        "Busy",
        "Client",
        "ConfigError",
        "Fenced",
        "FrameRefused",
        "ImpossibleFrame",
        "InternalError",
        "MalformedFrame",
        "Member",
        "Message",
        "NewView",
        "NotAllowed",
        "OverflowingFrame",
        "Refusal",
        "ReplayedFrame",
        "StateLost",
        "StorageError",
        "StoreFull",
        "StrangerFrame",
        "ThenceError",
        "TlsFiles",
        "TraceError",
        "UsageError",
        "__version__",
        "connect",
        "connect_blocking",
        "stay_awake",
    ]
    assert all(hasattr(thence, name) for name in thence.__all__)


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == thence.__version__
