"""The table of settings: its options, the values that it reads, and its reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.coordinator.policies import POLICIES
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.file import WholePoolTable
from pytest_ultrapar.pool.number_ranges import Bounds
from pytest_ultrapar.pool.setting_values import effective, settle
from pytest_ultrapar.pool.settings import (
    SETTINGS,
    Options,
    Ports,
    Repeats,
    Setting,
    Shard,
    WhichLog,
)
from pytest_ultrapar.session.options import add_options

SHARE = Bounds(at_least=0, at_most=1)
MINUTE = Bounds(at_least=1, at_most=60)
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
OPTIONS = [row for row in SETTINGS if row.option]


def reference() -> dict[str, list[str]]:
    """The cells of each option's row on the page: default, variable and meaning."""
    lines = [line for line in PAGE.split("\n## ")[0].splitlines() if line.startswith("| `")]
    cells = [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in lines
    ]
    return {first.strip("`"): rest for first, *rest in cells}


def test_reference_lists_the_options_in_the_order_of_the_table():
    assert list(reference()) == [row.spelling for row in OPTIONS]


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
def test_reference_has_default_variable_and_choices_of_an_option(row: Setting[object]):
    default, variable, meaning = reference()[row.spelling]

    assert default.replace("`", "") == (row.default_text or "none")
    assert variable.replace("`", "") == ", ".join(row.variables)
    assert meaning
    if row.name != "rate_mode":
        assert [word for word in row.choices or () if f"`{word}`" not in meaning + default] == []


def test_reference_names_every_policy_variable_and_ini_setting():
    meaning = reference()[Options.policy.spelling][-1]
    assert [name for name in POLICIES if f"`{name}`" not in meaning] == []
    assert f": {', '.join(POLICIES)}, or a policy" in Options.policy.help
    assert [row.variable for row in SETTINGS if row.variable not in PAGE] == []
    assert [row.ini for row in SETTINGS if row.ini and f"`{row.ini} = " not in PAGE] == []


class Recording:
    """A stand-in for pytest's parser and its option groups."""

    def __init__(self) -> None:
        self.declared: dict[str, dict[str, object]] = {}
        self.groups: dict[str, Recording] = {}

    def getgroup(self, _: str, description: str) -> Recording:
        return self.groups.setdefault(description, Recording())

    def addoption(self, name: str, **facts: object) -> None:
        self.declared[name] = facts

    def addini(self, *_: object, **__: object) -> None: ...


def test_help_has_three_groups():
    parser = Recording()
    add_options(parser)  # type: ignore[arg-type]

    assert list(parser.groups) == [
        "LLM evaluations (pytest-ultrapar)",
        "LLM evaluations: limits, keys and servers",
        "LLM evaluations: several machines",
    ]
    every_day, limits, machines = (group.declared for group in parser.groups.values())
    assert "--ultrapar-model" in every_day
    assert "--ultrapar-key-lock" in limits
    assert "--ultrapar-shard" in machines
    assert len(every_day | limits | machines) == len(OPTIONS)


def test_every_option_of_the_table_is_declared_with_its_default_and_variable_in_its_help():
    parser = Recording()
    add_options(parser)  # type: ignore[arg-type]

    declared = {k: v for group in parser.groups.values() for k, v in group.declared.items()}
    assert set(declared) == {row.option for row in OPTIONS}
    for row in OPTIONS:
        facts = declared[row.option]
        said = str(facts["help"])
        # None distinguishes "not given" from "given with the default value".
        assert facts["default"] is None
        assert f"default: {row.default_text}" in said or not row.default_text
        assert " or ".join(row.variables) in said
        assert said.endswith(".")
        assert "%" not in said.replace("%%", "")


def test_pool_fields_of_settings_exist():
    assert {row.file for row in SETTINGS if row.file} <= {*WholePoolTable.__struct_fields__}


def test_settings_without_values_are_the_defaults():
    options = settle({}, {})

    assert [row.name for row in SETTINGS if getattr(options, row.name) is not row.default] == []
    assert set(options.origin.values()) == {"default"}


def test_effective_value_is_recorded_with_its_origin():
    options = settle({"seed": 7}, {"NUM_INSTANCES": "3x2"}, file={"repeats": None})

    values = {one.name: (one.value, one.origin) for one in effective(options)}
    assert values["seed"] == (7, "command line --ultrapar-seed")
    assert values["repeats"] == ("3x2", "environment NUM_INSTANCES")
    assert values["episode_timeout"] == (900, "default")
    assert values["debug_log"] == ("off", "default")
    assert {"baseline", "check", "out", "gate"}.isdisjoint(values)


@pytest.mark.parametrize(
    ("facts", "text", "value", "wrong"),
    [
        ({"default": 5}, "-3", -3, ("3.5", 'must be an integer (got "3.5")')),
        ({"default": 5, "between": MINUTE}, "7", 7, ("x", "must be an integer >= 1 and <= 60")),
        ({"default": 5, "between": MINUTE}, "60", 60, ("61", "must be <= 60 (got 61)")),
        ({"default": 0.5, "between": SHARE}, "1e-3", 0.001, ("nan", "must be a number >= 0 and")),
        ({"default": 0.5}, "2", 2.0, ("1_0", 'must be a number (got "1_0")')),
        ({"default": "even"}, "by-key", "by-key", None),
        ({"default": None, "kind": str}, "a,b", "a,b", None),
        ({"default": None, "kind": Path}, "runs/a", Path("runs/a"), None),
        ({"default": ()}, "a,b", ("a,b",), None),
        ({"default": "a", "choices": ("a", "b")}, "B", "b", ("c", 'must be "a" or "b" (got "c")')),
        (
            {"default": "a", "choices": ("a", "b"), "by_truth": ("a", "b")},
            "no",
            "b",
            ("b", 'must be "true" or "false" (got "b")'),
        ),
        ({"default": False}, "yes", True, ("2", 'must be "true" or "false" (got "2")')),
        ({"default": Repeats(1)}, "2x3", Repeats(2, 3), ("x", "must be a number of repetitions")),
        ({"default": WhichLog()}, "2", WhichLog(is_on=True, number=2), ("x", 'must be "all",')),
        ({"default": None, "kind": Shard}, "2/4", Shard(2, 4), ("5/4", "must be between 1/4")),
        ({"default": None, "between": MINUTE}, "50", "50", ("x", "must be a number such as")),
        ({"default": None, "between": MINUTE}, "0.5%", "0.5%", ("101%", "must be <= 100")),
        ({"default": None, "kind": Ports}, "1, 2", Ports((1, 2)), ("x", "must be a list of ports")),
    ],
)
def test_variable_is_read_with_the_type_of_its_row(monkeypatch, facts, text, value, wrong):
    row = Setting("--ultrapar-more X", "More", variable="MORE", **facts)
    row.__set_name__(Options, "more")
    for module in ("pool.settings", "pool.setting_values"):
        monkeypatch.setattr(f"pytest_ultrapar.{module}.SETTINGS", (*SETTINGS, row))
    monkeypatch.setattr(Options, "more", row, raising=False)

    found = settle({}, {"MORE": text}).more  # type: ignore[attr-defined]

    assert getattr(found, "setting", found) == getattr(value, "setting", value)
    assert isinstance(found, type(value))
    if wrong is not None:
        with pytest.raises(ConfigError) as refused:
            settle({}, {"MORE": wrong[0]})
        assert str(refused.value).startswith(f"environment: MORE {wrong[1]}")


def test_every_kind_of_row_is_tested():
    tried = {int, float, str, Path, tuple, bool, Repeats, Ports, Shard, WhichLog}
    assert {row.kind for row in SETTINGS} == tried


def test_every_number_of_the_table_has_a_range():
    numbers = [row for row in SETTINGS if row.kind in {int, float, Repeats, WhichLog}]
    assert [row.name for row in numbers if row.between is None] == []
