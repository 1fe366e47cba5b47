"""The files of the project: nothing of one machine in them, packages pinned, exceptions from rules of security explained."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from tests.house.tree import ROOT, SOURCE, name_of

# Written in pieces, so that this file does not hold what it looks for.
OF_ONE_MACHINE = re.compile(
    "|".join(["/" + "work" + "/", "/" + "root" + "/", "/home" + "/[a-z]", "/" + "opt/", "pypi" + r"\.org",
              "python" + "hosted", "artifact" + "ory", "index" + "-url", "file:" + "//"])
)  # fmt: skip
BINARY = frozenset({".parquet", ".png", ".gz", ".zip"})


def files_of_the_project() -> list[Path]:
    """Everything that is or would be committed; in a tree without git, everything that is not hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        hidden = re.compile(r"(^|/)(\.(?!ci/|git[a-z]+$)|__pycache__|[^/]*\.egg-info/)")
        paths = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*"))
        names = [name for name in paths if not hidden.search(name)]
    return [ROOT / name for name in names if (ROOT / name).is_file() and Path(name).suffix not in BINARY]


def test_nothing_of_one_machine_is_in_the_tree() -> None:
    files = files_of_the_project()
    assert SOURCE / "errors.py" in files
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def test_a_path_of_one_machine_is_noticed() -> None:
    assert OF_ONE_MACHINE.search("see /" + "work/main")
    assert OF_ONE_MACHINE.search("https://" + "pypi." + "org/simple")
    assert not OF_ONE_MACHINE.search("/tmp/run.jsonl and src/thence/core")


def test_constraints_pin_every_package_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    assert {re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in wanted} <= {*pinned, "thence"}


def test_an_exception_from_a_rule_of_security_says_why() -> None:
    exceptions = [
        (path.relative_to(ROOT), line.strip(), said[1])
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if (said := re.search(r"# noqa: S\d+(.*)", line))
    ]
    assert exceptions
    assert [(path, line) for path, line, why in exceptions if len(why.strip(" -")) < 5] == []
