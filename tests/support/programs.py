"""Programs of the system that some tests call. Where one is missing those tests fail, and say what to type: none is skipped."""

from __future__ import annotations

import shutil
from typing import Final

PACKAGES: Final = {"systemd-analyze": "systemd", "openssl": "openssl", "cc": "gcc libc6-dev"}
"""The packages of Debian that have each of them; ``scripts/setup`` has the same list."""


def need(program: str) -> None:
    """Fail if a program is not there."""
    assert shutil.which(program) is not None, (
        f"this test calls {program}, which is not there. `make setup` installs it for root on Debian or Ubuntu; otherwise type:\n"
        f"    sudo apt-get install -y --no-install-recommends {PACKAGES[program]}"
    )
