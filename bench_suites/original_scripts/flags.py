"""Refuses the flags of the original scripts and names the equivalent."""

from __future__ import annotations

import argparse
from contextlib import suppress

import pytest

PAGE = "docs/benchmark/from-the-scripts.md"
INSTEAD = {
    "--model": "--ultrapar-model M",
    "--prompt-types": "--prompt-type a,b, and for flawed types the path bench_suites/phase53",
    "--num-instances": "--ultrapar-repeats N",
    "--instances": "--ultrapar-repeats N or NxM",
    "--task-types": "--task-type a,b",
    "--rate-mode": "--ultrapar-rate-mode fixed or adaptive",
    "--max-workers": "--ultrapar-max-workers N, for the whole pool",
    "--workers": "--ultrapar-max-workers N, for the whole pool",
    "--phase": "a path: bench_suites/phase51 to phase55",
    "--ultra-parallel": "the default, --ultrapar-mode ultra",
    "--conservative": "--ultrapar-policy serial",
    "--auto": "no flag: there is no menu to skip",
    "--start": "--ultrapar-resume latest",
    "--debug-log": "--ultrapar-debug-log all",
    "--batch-commit": "no flag: every episode is on disk before it is graded",
    "--silent": "-q or -qq",
}


def refuse(parser: pytest.Parser) -> None:
    """Register the flags as hidden options, except flags that another plugin has registered."""
    for flag in INSTEAD:
        with suppress(ValueError):
            parser.addoption(flag, action=_Refused, nargs="?", help=argparse.SUPPRESS)


class _Refused(argparse.Action):
    def __call__(self, *given: object) -> None:
        flag = self.option_strings[0]
        msg = f"{flag} is a flag of the original scripts; use {INSTEAD[flag]} ({PAGE})"
        raise pytest.UsageError(msg)
