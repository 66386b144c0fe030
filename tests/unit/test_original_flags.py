"""Flags of the original scripts are refused with the option to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench_suites.original_scripts import flags

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / flags.PAGE).read_text(encoding="utf-8")
OURS = {"--difficulty", "--tool-success-rate"}
"""The flags that are options here under the same name."""


def test_every_flag_of_the_page_is_known():
    table = PAGE.partition("## Flags")[2].partition("###")[0]
    named = re.findall(r"^\| (`--[^|]+) \|", table, flags=re.MULTILINE)
    found = {flag for cell in named for flag in re.findall(r"`(--[a-z-]+)", cell)}
    assert found - OURS == set(flags.INSTEAD)


@pytest.mark.parametrize("flag", flags.INSTEAD)
def test_flag_of_the_scripts_is_refused_with_the_option_to_use_instead(flag):
    parser = pytest.Parser(_ispytest=True)
    parser.addoption("--workers", help="of another plugin")
    flags.refuse(parser)
    if flag == "--workers":
        assert parser.parse(["--workers=2"]).workers == "2"
        return
    for words in ([flag], [flag, "optimal"], [f"{flag}=optimal"]):
        with pytest.raises(pytest.UsageError) as refused:
            parser.parse(words)
        assert str(refused.value) == (
            f"{flag} is a flag of the original scripts; use {flags.INSTEAD[flag]} "
            "(docs/benchmark/from-the-scripts.md)"
        )
