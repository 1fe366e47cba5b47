"""``scripts/setup``: which programs of the system it installs, and what it says where it may not. The system is faked."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import PACKAGES, need

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cksum", "dirname", "cat", "mkdir", "touch", "rm", "chmod")
"""What the script needs of the system anyway."""
JAVA = """#!/bin/bash
echo 'openjdk version "17.0.1"' >&2
"""
PYTHON = """#!/bin/bash
[[ $1 != -m ]]  # As far as making an environment, and no further.
"""
APT = """#!/bin/bash
printf '%s\\n' "$*" >>"$APT_LOG"
[[ " $* " == *" install "* ]] || exit 0
for program in systemd-analyze openssl cc; do
    [[ -e $BIN/$program ]] || printf '#!/bin/bash\n' >"$BIN/$program"
    chmod +x "$BIN/$program"
done
"""


class Machine:
    """A copy of the script and what it reads, with a ``PATH`` that has only what is put there."""

    def __init__(self, folder: Path, *, root: bool) -> None:
        self.folder = folder / "project"
        self.bin = folder / "bin"
        self.log = folder / "apt.log"
        (self.folder / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.put("id", f"#!/bin/bash\necho {0 if root else 1000}\n")
        self.put("java", JAVA)
        self.put("python3.11", PYTHON)
        self.put("apt-get", APT)
        self.put("apt-cache", "#!/bin/bash\n")

    def put(self, name: str, script: str = "#!/bin/bash\n") -> None:
        """Let there be a program."""
        path = self.bin / name
        path.write_text(script, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def set_up(self) -> subprocess.CompletedProcess[str]:
        """Run the script."""
        environment = {"PATH": str(self.bin), "BIN": str(self.bin), "APT_LOG": str(self.log), "HOME": os.environ.get("HOME", "/")}
        command = [str(self.bin / "bash"), str(self.folder / "scripts" / "setup")]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    @property
    def asked_for(self) -> str:
        """What was asked of apt-get."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


@pytest.mark.parametrize("program", PACKAGES)
def test_what_is_missing_is_named_with_the_command_that_installs_it(program: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    for other in PACKAGES:
        if other != program:
            machine.put(other)
    said = machine.set_up().stderr
    assert f"setup: warning: no {program}; everything works but tests that call it. On Debian or Ubuntu type:" in said
    assert f"    sudo apt-get install -y --no-install-recommends {PACKAGES[program]}\n" in said
    assert said.count("warning") == 1
    assert not machine.asked_for


def test_root_gets_them_installed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=True)
    done = machine.set_up()
    assert "setup: installing systemd\n" in done.stdout
    assert "install -y --no-install-recommends systemd\n" in machine.asked_for
    assert "warning" not in done.stderr
    machine.bin.joinpath("openssl").unlink()
    assert "setup: installing openssl\n" in machine.set_up().stdout
    machine.bin.joinpath("cc").unlink()
    said = machine.set_up().stdout
    assert "setup: installing gcc\nsetup: installing libc6-dev\n" in said


def test_a_compiler_without_the_headers_of_c_is_as_good_as_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    for program in PACKAGES:
        machine.put(program, "#!/bin/bash\n[[ $* != *-E* ]]\n")
    assert "setup: warning: no cc; everything works but tests that call it." in machine.set_up().stderr


def test_a_test_that_lacks_one_fails_and_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for program, package in PACKAGES.items():
        with pytest.raises(AssertionError, match=f"(?s){program}, which is not there.*--no-install-recommends {package}"):
            need(program)


def test_no_test_is_skipped() -> None:
    """Whatever a test needs is there, or it fails."""
    skips = re.compile(r"pytest\.(?:skip|importorskip|xfail|mark\.(?:skip|skipif|xfail))\b")
    found = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for found in skips.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found
