"""``thence store``: it says what is there, names what is damaged, and disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec
import pytest

from tests.support.crashes.spills import small_blocks
from tests.support.far_side import FarSide, send, small_files, started
from tests.support.stores import filled, only_segment, opened
from tests.unit.cli import refusal, run
from tests.unit.node.test_node import alone, durable, joined
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage.mailbox import Batch
from thence.storage.recovery import list_folder
from thence.storage.spill import list_spill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    filled(folder, [b"first", b"second"], [b"third"])
    return folder


def damage(folder: Path) -> int:
    """Flip a bit of the second entry, and return where its batch begins."""
    path = only_segment(folder)
    whole = path.read_bytes()
    place = whole.index(b"second")
    path.write_bytes(whole[:place] + b"S" + whole[place + 1 :])
    return path.stat().st_size


def test_inspect_says_what_is_there(folder: Path) -> None:
    ended = run("store", "inspect", folder)
    assert ended.code == 0
    assert "city/s1: format 1, not in use\nno snapshot\n" in ended.out
    assert only_segment(folder).name in ended.out
    store = opened(folder)
    store.compact(b"snapshot", 2)
    shown = json.loads(run("store", "inspect", folder, "--json").out)
    store.close()
    assert shown["verdict"] == "whole"
    assert shown["in_use_by"] == str(os.getpid())
    assert shown["snapshot"] == {"file": "snapshot-00000000000000000002.bin", "upto": 2, "bytes": 8}
    assert [(segment["first"], segment["last"]) for segment in shown["segments"]] == [(1, 3), (4, 3)]
    assert "snapshot of entries up to 2: 8 bytes" in run("store", "inspect", folder).out


def test_verify_names_each_place(folder: Path) -> None:
    ended = run("store", "verify", folder)
    assert (ended.code, ended.out) == (0, "whole: city/s1, 3 entries\n")
    damage(folder)
    ended = run("store", "verify", folder)
    assert ended.code == 1
    assert ended.out.startswith("damaged: city/s1, 3 entries\n")
    assert f"damage: {only_segment(folder)}, offset " in ended.out
    assert json.loads(run("store", "verify", folder, "--json").out)["verdict"] == "damaged"
    assert "1 place damaged" in run("store", "inspect", folder).out


def test_what_is_no_folder_is_named(folder: Path) -> None:
    file = only_segment(folder)
    for asked in ("inspect", "verify", "export"):
        assert refusal("store", asked, file) == f"{file} is no folder"
    assert refusal("store", "backup", file, folder / "copy") == f"{file} is no folder"
    (folder.parent / "one.toml").write_text('name = "one"\n[domains.D]\nmembers = ["s1"]\n', encoding="utf-8")
    serve = ("serve", folder.parent / "one.toml", "--server", "s1", "--listen", "127.0.0.1:0", "--data")
    assert refusal(*serve, file) == f"{file} is no folder"
    assert refusal(*serve, file / "s1") == f"{file / 's1'} cannot be a folder: something that it would be in is none"
    assert refusal("up", folder.parent / "one.toml", "--data", file) == f"{file} is no folder"


def test_whose_it_is_may_not_be_known(folder: Path) -> None:
    only_segment(folder).unlink()
    ended = run("store", "verify", folder)
    assert ended.code == 1
    assert ended.out.startswith("damaged: (not known whose), 0 entries\n")
    assert run("store", "inspect", folder).out.startswith("(not known whose): format 1, not in use\n")


def test_a_store_that_was_never_begun_is_whole(folder: Path) -> None:
    only_segment(folder).unlink()
    (folder / "durable").write_bytes(b"damaged")
    assert run("store", "verify", folder).code == 1
    (folder / "durable").write_bytes(b"")  # As a crash leaves it before there is a segment.
    ended = run("store", "verify", folder)
    assert ended.code == 0
    assert ended.out.startswith("whole: (not known whose), 0 entries\n")
    assert "holds no segment yet" in ended.out
    opened(folder).close()
    assert run("store", "verify", folder).out == "whole: city/s1, 0 entries\n"


def test_verify_tells_a_torn_tail_from_damage(folder: Path) -> None:
    with only_segment(folder).open("ab") as file:
        file.write(b"torn")
    ended = run("store", "verify", folder)
    assert ended.code == 0
    assert "4 bytes are of a commit that was never complete" in ended.out
    store = opened(folder)
    with only_segment(folder).open("ab") as file:
        file.write(b"half")
    assert "4 bytes are being written" in run("store", "verify", folder).out
    store.close()


def test_export_shows_entries_as_json(tmp_path: Path) -> None:
    folder = tmp_path / "entries"
    packed = msgspec.msgpack.encode(["s1", 7, b"text", b"\xff", {"k": None, 3: 1.5}, float("nan")])
    filled(folder, [packed, b"\xff\xfe", "söng".encode()])
    ended = run("store", "export", folder)
    assert ended.code == 0
    assert [json.loads(line) for line in ended.out.splitlines()] == [
        {"sequence": 1, "entry": ["s1", 7, "text", {"base64": "/w=="}, {"k": None, "3": 1.5}, "nan"]},
        {"sequence": 2, "entry": {"base64": "//4="}},
        {"sequence": 3, "entry": "söng"},
    ]


def test_export_shows_what_can_be_read_of_a_damaged_store(folder: Path) -> None:
    damage(folder)
    ended = run("store", "export", folder)
    assert ended.code == 1
    assert [json.loads(line)["sequence"] for line in ended.out.splitlines()] == [3]
    assert "damage: " in ended.err


def test_nothing_is_changed(folder: Path) -> None:
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    for name in ("inspect", "verify", "export"):
        assert run("store", name, folder).code == 0
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    for name in ("inspect", "verify", "export"):
        assert run("store", name, tmp_path).code == 2
        assert "no store" in run("store", name, tmp_path).err
        assert run("store", name, tmp_path / "nowhere").code == 2
    assert list_folder(tmp_path).segments == {}


def test_all_three_know_messages_in_files(tmp_path: Path) -> None:
    async def main() -> None:
        node = Node(alone(), "s1", NodeOptions(data=tmp_path, spill_after_bytes=1_000_000))
        await joined(node, "bob")
        for number in range(1, 31):
            node.intake.submit(Batch("bob", number, 1, ("bob",), None, b"letter %d" % number))
        await durable(node)
        await node.close()

    with small_blocks():
        asyncio.run(main())
    (path,) = list_spill(tmp_path).values()
    shown = run("store", "inspect", tmp_path)
    assert shown.code == 0
    assert [path.name, "messages", "bob", "1", "30"] in [line.split()[:5] for line in shown.out.splitlines()]
    (row,) = json.loads(run("store", "inspect", tmp_path, "--json").out)["spilled"]
    assert (row["file"], row["kind"], row["owner"], row["first"], row["last"]) == (path.name, "message", "bob", 1, 30)
    assert run("store", "verify", tmp_path).out.endswith(", 30 messages in files\n")
    lines = [json.loads(line) for line in run("store", "export", tmp_path).out.splitlines()]
    assert [(line["client"], line["position"], line["bundle"][-1]) for line in lines if "client" in line] == [
        ("bob", number, f"letter {number}") for number in range(1, 31)
    ]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"letter 17", b"letter 71"))
    verified = run("store", "verify", tmp_path)
    assert (verified.code, f"damage: {path}, offset " in verified.out) == (1, True)
    exported = run("store", "export", tmp_path)
    assert exported.code == 1
    assert len([line for line in exported.out.splitlines() if "client" in line]) == 28


def test_all_three_know_frames_in_files(tmp_path: Path) -> None:
    async def main() -> None:
        node = started(tmp_path)
        await FarSide().introduce(node)
        send(node, 1, 60)
        await durable(node)
        await node.close()

    with small_files():
        asyncio.run(main())
    rows = json.loads(run("store", "inspect", tmp_path, "--json").out)["spilled"]
    assert {(row["kind"], row["owner"]) for row in rows} == {("frame", "s2 in D")}
    first, last = rows[0]["first"], rows[-1]["last"]
    shown = [line.split()[1:5] for line in run("store", "inspect", tmp_path).out.splitlines()]
    assert ["frames", "s2", "in", "D"] in shown
    assert run("store", "verify", tmp_path).out.endswith(f", {last - first + 1} frames in files\n")
    lines = [json.loads(line) for line in run("store", "export", tmp_path).out.splitlines()]
    assert [line["position"] for line in lines if line.get("neighbour") == "s2 in D"] == list(range(first, last + 1))
