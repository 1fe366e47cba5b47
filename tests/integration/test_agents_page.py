"""The page on agents is followed step by step, with free ports in the place of those on the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.integration.test_quickstart_page import Shell
from tests.test_docs import blocks, matches, read
from thence.cli.up import free_addresses

PORTS = ("7421", "7422")


def test_the_page_is_followed(tmp_path: Path) -> None:
    page = read("docs/agents.md")
    for port, address in zip(PORTS, free_addresses(len(PORTS)), strict=True):
        page = page.replace(f"127.0.0.1:{port}", address)
    (fabric,) = blocks(page, "toml")
    counter, program = blocks(page, "python")
    (tmp_path / "pair.toml").write_text(fabric)
    (tmp_path / "counter.py").write_text(counter)
    (tmp_path / "page.py").write_text(f"import thence\n{program}")
    shell = Shell(tmp_path)
    followed = 0
    try:
        for kind, block in re.findall(r"^```(console|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            if kind == "python":
                if block == program:
                    shell.do(f"{sys.executable} page.py")
                continue
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                printed = shell.do(command)
                assert not shown.strip() or matches(shown, printed), f"{command} prints:\n{printed}"
                followed += 1
    finally:
        shell.stop()
    assert followed == 12
