"""What is refused before Spark starts, and what is said about it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.support.pipeline.raft_traces import ccf_lines, etcd_lines
from tests.support.pipeline.spans import jaeger_json, otlp_file, spans_in_memory, zipkin_json
from tests.test_docs import ROOT
from tests.unit.cli import refusal, run
from thence.errors import ConfigError
from thence.pipeline import session
from thence.pipeline.importers import SourceOptions, check
from thence.pipeline.importers.mapped.mapping import read_mapping
from thence.pipeline.importers.mapped.presets import preset_names, preset_path


class SparkStarted(Exception):
    """Spark was asked for."""


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(master: str | None) -> None:
        raise SparkStarted(master)

    monkeypatch.setattr(session, "spark_session", start)


@pytest.mark.parametrize(
    ("name", "content", "options", "why"),
    [
        ("x.json", '{"a":1}\n', (), "needs a mapping (--mapping FILE or --preset NAME), which says where"),
        ("x.json", '{"a":1}\n', (), "presets are ccf-raft, etcd-raft, jaeger, kafka, otlp, shiviz, zipkin"),
        ("x.json", '{\n  "a": 1\n}\n', (), "needs a mapping"),
        ("x.json", "{}\n", ("--preset", "xray"), "preset xray: not known; the presets are ccf-raft, etcd-raft,"),
        ("x.json", "{}\n", ("--mapping", "no.toml"), "no.toml: No such file"),
        ("x.json", "{}\n", ("--mapping", "m.toml", "--preset", "otlp"), "--preset and --mapping: give one of them"),
        ("x.json", "{}\n", ("--preset", "otlp", "--pattern", "x"), "format shiviz: takes no mapping"),
        ("x.json", "{}\n", ("--preset", "shiviz", "--format", "ndjson"), "format ndjson: takes no mapping"),
        ("x.log", "hello\n", (), "no events found; give the regular expression of the log (--pattern)"),
        ("x.log", " \n", (), "nothing in there"),
        ("x.json.gz", "no gzip", (), "x.json.gz: Not a gzipped file"),
        ("s3a://bucket/x", None, ("--preset", "xray"), "preset xray: not known"),
    ],
)
def test_what_is_known_to_be_wrong_starts_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | None, options: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content, encoding="utf-8")
    assert why in refusal("import", name, "--out", "out", *options)


def test_a_source_that_may_be_imported_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "in" / "_hidden").mkdir(parents=True)
    (tmp_path / "in" / "_hidden" / "x.json").write_text("{}", encoding="utf-8")
    with gzip.open(tmp_path / "in" / "x.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"process":"a","index":0,"kind":"x"}\n')
    check(str(tmp_path / "in"), SourceOptions())
    check(str(tmp_path / "not there"), SourceOptions())
    ended = run("import", tmp_path / "in", "--out", tmp_path / "out")
    assert ended.code == 2
    assert "SparkStarted" in ended.err


def test_the_presets_that_fit_are_named(tmp_path: Path) -> None:
    otlp_file(tmp_path / "otlp")
    spans, _ = spans_in_memory()
    texts = {
        "otlp": (tmp_path / "otlp").read_text(encoding="utf-8"),
        "zipkin": json.dumps(zipkin_json(spans), indent=1),
        "jaeger": json.dumps(jaeger_json(spans)),
        "etcd-raft": "".join(json.dumps(line) + "\n" for line in etcd_lines()),
        "ccf-raft": "".join(json.dumps(line) + "\n" for line in ccf_lines()),
        "kafka": '{"topic":"t","partition":0,"offset":5,"ts":1}\n',
    }
    assert sorted([*texts, "shiviz"]) == preset_names()
    for name, text in texts.items():
        (tmp_path / "x.json").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as refused:
            check(str(tmp_path / "x.json"), SourceOptions())
        assert f"; --preset {name} ({read_mapping(preset_path(name)).about}) fits" in str(refused.value)


def test_every_preset_says_what_it_reads_and_what_it_cannot_show() -> None:
    for name in preset_names():
        mapping = read_mapping(preset_path(name))
        assert mapping.about
        assert mapping.doubts
    help_of_import = " ".join(run("import", "--help").out.split())
    assert all(name in help_of_import for name in preset_names())
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "pipeline/importers/mapped/presets/*.toml" in project
