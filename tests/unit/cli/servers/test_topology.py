"""``thence topology``: what it says of a fabric, how it draws one, and the files that it makes."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.unit.cli import refusal, run
from thence.cli.servers import picture
from thence.core.topology.toml import parse, write
from thence.studies.parts.figures import SHAPES

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def fig2(tmp_path: Path) -> Path:
    path = tmp_path / "fig2.toml"
    path.write_text(write(SHAPES["domains-fig2"].make()), encoding="utf-8")
    return path


@pytest.fixture
def cyclic(tmp_path: Path) -> Path:
    path = tmp_path / "cyclic.toml"
    domains = "".join(f'\n[domains.{name}]\nmembers = ["{one}", "{other}"]\n' for name, one, other in ("Aab", "Bbc", "Cca"))
    path.write_text(f'name = "t"\n{domains}', encoding="utf-8")
    return path


def words(printed: str) -> list[str]:
    return [" ".join(line.split()) for line in printed.splitlines() if line.strip(" ─")]


# --- check ---------------------------------------------------------------------------------------------------------------


def test_check_says_what_a_fabric_is(fig2: Path) -> None:
    ended = run("topology", "check", fig2)
    assert (ended.code, ended.err) == (0, "")
    assert words(ended.out) == [
        "domains-fig2: 8 processes, 5 domains, 4 relays, 0 links",
        "promises causal; keeps fifo, causal",
        "domain ordering members relays note",
        "A matrix 3 S1 S3 -",
        "B matrix 2 S4 -",
        "C matrix 3 S6 -",
        "D matrix 2 S3 S6 -",
        "E matrix 2 S1 S4 -",
    ]


def test_check_lists_links_options_and_what_lies_inside(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        """name = "t"
[domains.A]
members = ["a", "b"]
ordering = { name = "vector", stamps = "full" }
[domains.B]
members = ["b"]
[domains.C]
members = ["c"]
[[links]]
between = ["A", "C"]
relays = [["a", "c"], ["b", "c"]]
""",
        encoding="utf-8",
    )
    said = words(run("topology", "check", path).out)
    assert "A vector stamps=full 2 - -" in said
    assert "B matrix 1 - inside A: carries no traffic" in said
    assert "A-C A and C causal 2 -" in said


def test_check_refuses_with_file_line_and_a_way_out(cyclic: Path) -> None:
    assert refusal("topology", "check", cyclic).startswith(f"{cyclic}:3: a cycle: A - a - C - c - B - b - A. Around a cycle")
    cyclic.write_text('name = "t"\n[domains.A]\nmembers = ["a"]\nordring = "fifo"\n', encoding="utf-8")
    assert refusal("topology", "check", cyclic) == f"{cyclic}:4: domain 'A': there is no key 'ordring'; did you mean 'ordering'?"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert refusal("topology", "check", tmp_path / "none.toml").startswith(f"{tmp_path / 'none.toml'}: cannot be read: ")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal("topology", "show", tmp_path / "bytes.toml")


# --- show ----------------------------------------------------------------------------------------------------------------


def test_show_draws_relays_between_domains(fig2: Path) -> None:
    assert run("topology", "show", fig2).out == (
        "A (matrix): S1 S2 S3\n"
        "├─ S1 ─ E (matrix): S1 S4\n"
        "│       └─ S4 ─ B (matrix): S4 S5\n"
        "└─ S3 ─ D (matrix): S3 S6\n"
        "        └─ S6 ─ C (matrix): S6 S7 S8\n"
    )


def test_show_draws_links_as_double_lines(tmp_path: Path) -> None:
    run("topology", "make", "linked", "--domains", "3", "--size", "2", "--joined", "chain", "--out", tmp_path / "t.toml")
    assert run("topology", "show", tmp_path / "t.toml").out == (
        "d2 (vector): p2-1 p2-2\n"
        "├═ causal: p2-1=p1-1, p2-2=p1-2 ═ d1 (vector): p1-1 p1-2\n"
        "└═ causal: p2-1=p3-1, p2-2=p3-2 ═ d3 (vector): p3-1 p3-2\n"
    )


def test_show_draws_a_cycle_only_when_forced(cyclic: Path) -> None:
    assert "a cycle: " in refusal("topology", "show", cyclic)
    drawn = run("topology", "show", cyclic, "--force").out.splitlines()
    assert drawn == [
        "A (matrix): a b",
        "├─ a ─ C (matrix): c a",
        "└─ b ─ B (matrix): b c",
        "and c leads to B as well: a second way",
    ]
    assert picture_of(cyclic, "--force").findall(f"{SVG}path")


def picture_of(path: Path, *options: str) -> ET.Element:
    """Return the picture of a fabric, read as XML."""
    ended = run("topology", "show", path, "--out", "-", *options)
    assert (ended.code, ended.err) == (0, "")
    return ET.fromstring(ended.out)


def inside(inner: ET.Element, outer: ET.Element) -> bool:
    def edges(part: ET.Element) -> tuple[float, float, float, float]:
        x, y, width, height = (float(part.get(name, "0")) for name in ("x", "y", "width", "height"))
        return x, y, x + width, y + height

    left, top, right, bottom = edges(inner)
    return edges(outer)[0] <= left and edges(outer)[1] <= top and right <= edges(outer)[2] and bottom <= edges(outer)[3]


@pytest.mark.parametrize("name", SHAPES)
def test_a_picture_shows_everybody_once_and_in_place(name: str, tmp_path: Path) -> None:
    topology = SHAPES[name].make()
    (tmp_path / "t.toml").write_text(write(topology), encoding="utf-8")
    root = picture_of(tmp_path / "t.toml")
    paper, *rects = root.findall(f"{SVG}rect")
    mailboxes = [rect for rect in rects if rect.get("rx") == "14"]
    pills = [rect for rect in rects if rect.get("rx") == "12"]
    assert len(mailboxes) == len(topology.domains) - len(topology.inner)
    standbys = sum(len(group) - 1 for group in topology.replicas)  # Replicas are one pill, with all their names.
    assert len(pills) == len(topology.processes) - standbys
    labels = [text.text for text in root.findall(f"{SVG}text") if text.get("class") is None and text.text]
    assert sorted(name for label in labels for name in label.split("+")) == sorted(topology.processes)
    assert all(inside(rect, paper) for rect in rects)
    # Mailboxes do not overlap; a member is in its own mailbox, and a relay in none.
    held = [sum(inside(pill, mailbox) for mailbox in mailboxes) for pill in pills]
    joints = len(topology.relays) - standbys
    assert (held.count(0), held.count(1)) == (joints, len(pills) - joints)
    assert not any(inside(one, other) for one in mailboxes for other in mailboxes if one is not other)


def test_a_picture_has_a_line_for_each_pair_of_a_link(tmp_path: Path) -> None:
    run("topology", "make", "linked", "--pairs", "3", "--domains", "3", "--out", tmp_path / "t.toml")
    assert len(picture_of(tmp_path / "t.toml").findall(f"{SVG}line")) == 2 * 3


def test_a_picture_can_go_to_a_file(fig2: Path, tmp_path: Path) -> None:
    out = tmp_path / "fig2.svg"
    assert run("topology", "show", fig2, "--out", out) == (0, "", f"Written: {out}\n")
    assert out.read_text(encoding="utf-8") == run("topology", "show", fig2, "--out", "-").out


def test_names_are_written_as_text_into_a_picture(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('name = "a<b>&"\n[domains."<d>"]\nmembers = ["<p>", "&"]\n', encoding="utf-8")
    texts = {"".join(text.itertext()) for text in picture_of(tmp_path / "t.toml").findall(f"{SVG}text")}
    assert texts == {"a<b>& · promises causal", "<d> · matrix", "<p>", "&"}


def test_what_is_too_large_is_no_picture(fig2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MAX_DRAWN_PROCESSES", 7)
    says = refusal("topology", "show", fig2, "--out", "-")
    assert says == "8 processes are no picture any more; MAX_DRAWN_PROCESSES is 7"


def test_many_members_are_counted(tmp_path: Path) -> None:
    run("topology", "make", "flat", "--processes", "20", "--out", tmp_path / "t.toml")
    assert run("topology", "show", tmp_path / "t.toml").out.endswith("p11 p12 … and 8 more\n")


# --- route ---------------------------------------------------------------------------------------------------------------


def test_a_route_is_process_domain_process(fig2: Path) -> None:
    assert run("topology", "route", fig2, "S1", "S8") == (0, "S1 - A - S3 - D - S6 - C - S8   (3 hops)\n", "")
    assert run("topology", "route", fig2, "S2", "S2").out == "S2   (0 hops)\n"


def test_for_several_the_plan_follows(fig2: Path) -> None:
    assert words(run("topology", "route", fig2, "S2", "S3", "S7").out) == [
        "S2 - A - S3 (1 hop)",
        "S2 - A - S3 - D - S6 - C - S7 (3 hops)",
        "process sends in to",
        "S2 A S3",
        "S3 D S6",
        "S6 C S7",
        "visits 3 of 5 domains",
    ]


def test_a_plan_crosses_links(tmp_path: Path) -> None:
    for mode, relay in (("causal", "p2-1"), ("fifo", "p2-2")):
        run("topology", "make", "linked", "--domains", "2", "--mode", mode, "--out", tmp_path / "t.toml")
        said = words(run("topology", "route", tmp_path / "t.toml", "p1-2", "p2-3", "p2-4").out)
        assert f"{'p1-1' if mode == 'causal' else 'p1-2'} d1-d2 {relay}" in said
        assert f"{relay} d2 p2-3 p2-4" in said


def test_nobody_can_be_routed_to(fig2: Path) -> None:
    assert refusal("topology", "route", fig2, "S1", "S88") == f"{fig2}: there is no process 'S88'; did you mean 'S8'?"
    assert refusal("topology", "route", fig2, "nobody", "S8") == f"{fig2}: there is no process 'nobody'"


# --- make ----------------------------------------------------------------------------------------------------------------


def test_without_a_shape_all_are_listed() -> None:
    ended = run("topology", "make")
    assert ended.code == 0
    assert all(f" {name} " in ended.out for name in SHAPES)
    assert "bus --domains --size --ordering" in " ".join(ended.out.split())


def test_a_shape_goes_to_standard_output_or_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "bus.toml"
    wanted = ("topology", "make", "bus", "--domains", "3", "--size", "2", "--name", "line")
    assert run(*wanted, "--out", out) == (0, "", f"Written: {out}\n")
    assert run(*wanted) == (0, out.read_text(encoding="utf-8"), "")
    made = parse(out.read_text(encoding="utf-8"))
    assert (made.name, len(made.processes), len(made.domains)) == ("line", 6, 4)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_made_is_the_shape(name: str) -> None:
    assert run("topology", "make", name).out == write(SHAPES[name].make())


def test_levels_take_their_options_one_after_the_other() -> None:
    arguments = "hierarchy --levels 3 --branching 3 --branching 4 --size 5 --ordering sequenced --ordering vector --name x"
    made = parse(run("topology", "make", *arguments.split()).out)
    assert len(made.processes) == 60
    assert [made.domains[name].ordering for name in ("top", "g1", "g1-1")] == ["vector", "vector", "sequenced"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("buss", "there is no shape 'buss'; did you mean 'bus'?"),
        ("xyz", "there is no shape 'xyz'; thence topology make lists them"),
        ("bus --pairs 3", "--pairs: bus takes --domains, --size, --ordering"),
        ("tree --branching 9", "branching 9: at most 3 domains can hang below one of 4"),
        ("linked --joined ring", "joined ring: must be one of star, chain, tree"),
        ("linked --mode total", "mode total: must be one of causal, fifo"),
        ("clusters-fig6 --case z", "case z: must be one of a, b, c, d, e"),
        ("bus --ordering matriks", "there is no ordering 'matriks'; did you mean 'matrix'?"),
        ("bus --out no-such-folder/bus.toml", "--out no-such-folder/bus.toml: there is no such folder"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(arguments: str, says: str) -> None:
    assert refusal("topology", "make", *shlex.split(arguments)).startswith(says)


def test_a_picture_must_be_svg(fig2: Path) -> None:
    assert refusal("topology", "show", fig2, "--out", "x.png") == "--out x.png: must end in .svg, or be - for standard output"


@pytest.mark.parametrize("command", ["check", "show", "route", "make"])
def test_help_reads_like_a_manual_page(command: str) -> None:
    ended = run("topology", command, "--help")
    assert ended.code == 0
    assert f"Example: thence topology {command} " in " ".join(ended.out.split())
