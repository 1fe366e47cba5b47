"""The packages that only reports and studies need."""

from __future__ import annotations

from importlib.util import find_spec

from thence.errors import ConfigError


def needed(package: str) -> None:
    """Raise an error that says what to install if a package is missing."""
    if find_spec(package) is None:
        raise ConfigError(f"reports and studies need {package}: pip install 'thence[report]'")
