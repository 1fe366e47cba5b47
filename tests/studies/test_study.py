"""The file of a study: what is accepted, what is refused and how, its points, and its seeds."""

from __future__ import annotations

import hashlib
import re

import pytest

from tests.studies.made import TEXT, study
from thence.errors import ConfigError
from thence.studies.models import model_named
from thence.studies.study import IN_ORDER, Value, canonical, matches, parse, seed_of, study_named, study_names


def test_points_are_all_combinations_but_those_left_out() -> None:
    points = [(point["service"], point["load"], point["customers"]) for point in study().points()]
    assert points == [("random", 0.2, 400), ("random", 0.4, 400), ("random", 0.6, 400), ("fixed", 0.2, 400), ("fixed", 0.4, 400)]


def test_the_small_version_replaces_what_it_names() -> None:
    small = study(small=True)
    assert [(point["service"], point["load"]) for point in small.points()] == [("random", 0.2), ("random", 0.6), ("fixed", 0.2)]
    assert (small.parameters["customers"], small.repetitions.least, small.repetitions.most) == (50, 2, 2)
    assert small.repetitions.share == study().repetitions.share
    assert small.is_small
    assert not study().is_small


def test_the_seed_comes_from_study_point_and_repetition() -> None:
    point: dict[str, Value] = {"b": 1, "a": "x"}
    expected = int.from_bytes(hashlib.sha256(b'queue\n{"a":"x","b":1}\n3').digest()[:8], "big") // 2
    assert seed_of("queue", point, 3) == expected < 2**63
    assert seed_of("queue", dict(reversed(point.items())), 3) == expected
    others = {seed_of("queue", point, 4), seed_of("other", point, 3), seed_of("queue", {**point, "b": 2}, 3)}
    assert len(others - {expected}) == 3


def test_what_has_the_same_chance_has_the_same_seeds() -> None:
    made = study(("[parameters]", 'same_chance = ["service"]\n\n[parameters]'))
    seeds = {(point["service"], point["load"]): made.seed(point, 0) for point in made.points()}
    assert seeds["random", 0.2] == seeds["fixed", 0.2] != seeds["random", 0.4] == seeds["fixed", 0.4]
    assert made.seed({"service": "random", "load": 0.2}, 1) != made.seed({"service": "random", "load": 0.2}, 0)
    with pytest.raises(ConfigError, match="same_chance: 'servcie' is not a parameter of the grid; did you mean 'service'"):
        study(("[parameters]", 'same_chance = ["servcie"]\n\n[parameters]'))


@pytest.mark.parametrize("words", ["fixed", "fixed, really", "a=b", "load", "it's"])
def test_a_label_names_its_point(words: str) -> None:
    made = study(('["random", "fixed"]', f'["random", "{words}"]'), ('service = "fixed"\nload', f'service = "{words}"\nload'))
    for point in made.points():
        assert canonical(made.point_labelled(made.label(point))) == canonical(point)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("load=0.2", "service is missing, one of random, fixed"),
        ("load=0.3,service=fixed", "load=0.3: must be one of 0.2, 0.4, 0.6"),
        ("load=0.6,service=fixed", "leaves this combination out"),
        ("laod=0.2", "expected KEY=VALUE with a key of the grid"),
    ],
)
def test_a_label_that_names_none_is_refused(label: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        study().point_labelled(label)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("share = 0.1", "shar = 0.1", "queue.toml: repetitions.shar: no such key; did you mean 'share'?"),
        ("title =", "titel =", "queue.toml: titel: no such key; did you mean 'title'?"),
        ('this = { service = "random" }', 'thi = { service = "random" }', "claims[0].thi: no such key"),
        ('kind = "order"', 'kind = "orders"', "queue.toml: claims[0].kind: Invalid value 'orders'"),
        ('relation = "above"', 'relation = "over"', "claims[0].relation: Invalid enum value 'over'"),
        ('of = ["wait"]', 'of = ["wiat"]', "repetitions.of: 'wiat' is not a measure; did you mean 'wait'?"),
        ('x = "load"', 'x = "laod"', "plots[0].x: 'laod' is not a parameter of the grid; did you mean 'load'?"),
        ('formula = "formula"', 'formula = "form"', "claims[1].formula: 'form' is not a measure"),
        ('against = "load"', 'against = "service"', "claims[2].against: service is not a number"),
        ('that = { service = "fixed" }', "that = { load = 0.2 }", "claims[0].that: must name the same parameters as this"),
        ("grid = { load", "grid = { laod", "small.grid: 'laod' is not a parameter of the grid"),
        ("customers = 400", "customers = 400\nload = 1", "parameters.load: is in the grid as well"),
        ('"random", "fixed"', '"", "fixed"', "grid.service: '': a value that is text must be one line"),
        ("most = 20", "most = 3", "repetitions.most: 1 <= least <= most"),
        ("share = 0.1", "share = 1.5", "repetitions.share: must be between 0 and 1"),
        ("low = 1.1\n", "", "claims[3].low: a power needs low and high"),
        ("load = [0.2, 0.4, 0.6]", "load = []", "grid.load: has no value"),
        ('name = "queue"', 'name = "Queue 1"', "name: must be of a to z"),
        ("least = 4", "least = 'four'", "repetitions.least: Expected `int`, got `str`"),
        ('title = "How', "title = How", "queue.toml: Invalid value (at line 3"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(old: str, new: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        study((old, new))


def test_a_list_stands_for_any_of_its_values() -> None:
    assert matches({"a": 1, "b": "x"}, {"a": [1, 2]})
    assert not matches({"a": 3, "b": "x"}, {"a": [1, 2]})
    assert matches({"a": 3}, {})


def test_an_unknown_study_or_model_is_named() -> None:
    with pytest.raises(ConfigError, match="no study 'nothing-like-it'"):
        study_named("nothing-like-it")
    with pytest.raises(ConfigError, match=r"elsewhere/x\.toml: no such file"):
        study_named("elsewhere/x.toml")
    with pytest.raises(ConfigError, match="no model 'nothing_like_it'"):
        model_named("nothing_like_it")
    with pytest.raises(ConfigError, match=r"tests\.studies\.made has no function run"):
        model_named("tests.studies.made")


def test_the_catalogue_is_in_its_order() -> None:
    names = study_names()
    known = [name for name in names if name in IN_ORDER]
    assert known == [name for name in IN_ORDER if name in names]


def test_the_text_is_kept() -> None:
    assert parse(TEXT).text == TEXT
