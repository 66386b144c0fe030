"""Flags of the original scripts, refused with what is written here instead."""

from __future__ import annotations

import argparse
from contextlib import suppress

import pytest

PAGE = "docs/benchmark/from-the-scripts.md"
INSTEAD = {
    "--model": "--ultrapar-model M",
    "--prompt-types": "--prompt-type a,b, and for flawed ones the path bench_suites/phase53",
    "--num-instances": "--ultrapar-repeats N",
    "--instances": "--ultrapar-repeats N or NxM",
    "--task-types": "--task-type a,b",
    "--rate-mode": "--ultrapar-rate-mode fixed or adaptive",
    "--max-workers": "--ultrapar-max-workers N, over the whole pool",
    "--workers": "--ultrapar-max-workers N, over the whole pool",
    "--phase": "a path: bench_suites/phase51 to phase55",
    "--ultra-parallel": "the default, --ultrapar-mode ultra",
    "--conservative": "--ultrapar-policy serial",
    "--auto": "left out: nothing is asked",
    "--start": "--ultrapar-resume latest",
    "--debug-log": "--ultrapar-debug-log all",
    "--batch-commit": "left out: every episode is on disk before it is graded",
    "--silent": "-q or -qq",
}


def refuse(parser: pytest.Parser) -> None:
    """Have pytest know the flags, hidden; one that another plugin has is that plugin's."""
    for flag in INSTEAD:
        with suppress(ValueError):
            parser.addoption(flag, action=_Refused, nargs="?", help=argparse.SUPPRESS)


class _Refused(argparse.Action):
    def __call__(self, *given: object) -> None:
        flag = self.option_strings[0]
        msg = f"{flag} is a flag of the original scripts; here it is {INSTEAD[flag]} ({PAGE})"
        raise pytest.UsageError(msg)
