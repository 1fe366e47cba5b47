"""The mappings that come with thence: one TOML file each in the folder ``presets``, called after what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from thence.errors import ConfigError

FOLDER: Final = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def preset_path(name: str) -> str:
    """Return where the mapping of this name is."""
    if name not in preset_names():
        raise ConfigError(f"preset {name}: not known; the presets are {', '.join(preset_names())}")
    return str(FOLDER / f"{name}.toml")
