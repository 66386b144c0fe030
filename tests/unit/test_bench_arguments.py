"""The command line of `ultrapar bench`."""

from __future__ import annotations

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.compare.bench.arguments import check_passed_on, parse_modes
from pytest_ultrapar.errors import ConfigError


def test_modes_keep_their_order():
    assert parse_modes("ultra, serial") == ("ultra", "serial")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a mode; allowed: serial, rotate, phase, ultra, each at most once, sep"),
        ("serial,", "'' is not a mode"),
        ("serial,ulta", "'ulta' is not a mode;.*did you mean ultra\\?"),
        ("SERIAL", "did you mean serial\\?"),
        ("zzz", "'zzz' is not a mode; allowed: serial, rotate, phase, ultra"),
        ("ultra,serial,ultra", "names ultra twice"),
    ],
)
def test_invalid_modes_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_modes(text)


@pytest.mark.parametrize(
    ("passed_on", "message"),
    [
        ([], "put the suite before pytest's options"),
        (["suite", "--ultrapar-mode=ultra"], "--ultrapar-mode cannot be used .*with --modes"),
        (["suite", "--ultrapar-out", "x"], "specify the directory with --out DIR"),
        (["suite", "--ultrapar-pool=x"], "--pool is given"),
        *(
            (["suite", f"--{name}"], "pytest runs no cases with it")
            for name in ("co", "collectonly", "fixtures")
        ),
        *((["suite", f"--{name}"], "runs no cases") for name in ("funcargs", "help", "version")),
    ],
)
def test_conflicting_options_are_refused(passed_on, message):
    with pytest.raises(ConfigError, match=message):
        check_passed_on(passed_on, has_pool=True)


def test_own_options_and_options_for_pytest_may_be_mixed():
    line = "bench a -k pear --pool p.toml -n 2 --modes=serial b --ultrapar-seed 3 --out o -q"
    arguments, rest = cli._parser().parse_known_args(line.split())
    assert (arguments.pool, arguments.modes, str(arguments.out)) == ("p.toml", "serial", "o")
    assert rest == ["a", "-k", "pear", "-n", "2", "b", "--ultrapar-seed", "3", "-q"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench", "ultrapar bench: error: put the suite"),
        ("bench a --modes x", "'x' is not a mode"),
        ("bench a --ultrapar-out=b", "--ultrapar-out cannot be used"),
        ("simulate --pool p.toml --what", "error: unrecognized arguments: --what"),
        (
            "gate latest --gate speedup>=3",
            "ultrapar gate: error: unrecognized arguments: --gate speedup>=3; the options are "
            "--baseline, --rule, --undecided, --markdown",
        ),
    ],
)
def test_bad_input_ends_with_exit_code_4_and_one_line(line, message, refused):
    assert message in refused(*line.split())


def test_directory_that_is_not_empty_is_refused(tmp_path, refused):
    (tmp_path / "own").write_text("mine")
    assert f"--out: {tmp_path} is not empty" in refused("bench", "a", "--out", str(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["own"]
