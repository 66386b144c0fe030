"""Policies and mode `phase` of the original WorkflowBench scripts, through the public hooks.

The root conftest names this plugin in `pytest_plugins`. The two options have the prefix `ultrapar`,
since they need mode `phase`. They are registered here, since their values come from the scripts'
documents.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import pytest

from bench_suites.original_scripts import flags
from bench_suites.original_scripts.process import PART_OF, process_of
from bench_suites.original_scripts.waves import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar import Assignment
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case

POLICIES = ("model-key", "group-key", "split")
PHASE_POLICIES = ("model-key", "group-key", "even")
"""Policies of mode `phase`, the default first. Other policies have their own order of cases."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of mode `phase`, and refuse the scripts' flags."""
    flags.refuse(parser)
    group = parser.getgroup("bench_suites", "benchmark suites (bench_suites/)")
    group.addoption(
        "--ultrapar-phase-variant",
        dest="ultrapar_phase_variant",
        choices=VARIANTS,
        help="mode phase: run as many cases in parallel as script seed 002 ('document') or 000 "
        "('ultra-document': all deployments of a model; in 5.3, only Qwen models run flaw "
        "groups in parallel) (default: document)",
    )
    group.addoption(
        "--ultrapar-phase-scale",
        dest="ultrapar_phase_scale",
        metavar="FACTOR",
        type=_factor,
        help="mode phase: factor that multiplies the seconds between staggered starts; 0 starts "
        "all at the same time (default: 1)",
    )


def pytest_ultrapar_policies(config: pytest.Config, mode: str) -> Sequence[str]:
    """The original scripts' key assignments.

    Raises:
        pytest.UsageError: An option of mode `phase` was given for another mode.
    """
    if mode == "phase":
        return PHASE_POLICIES
    for name in ("variant", "scale"):
        if config.getoption(f"ultrapar_phase_{name}") is not None:
            msg = f"--ultrapar-phase-{name} needs --ultrapar-mode phase (the mode is {mode})"
            raise pytest.UsageError(msg)
    return POLICIES


def pytest_ultrapar_process(case: Case) -> str | None:
    """The scripts' process that ran the case.

    When a run starts, it names the keys that these processes overload.
    """
    return None if case.suite not in PART_OF else process_of(case).name


def pytest_ultrapar_assign(  # noqa: PLR0917 - pluggy passes them by name
    config: pytest.Config,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    pool: Pool,
    policy: str,
    mode: str,
) -> Assignment | None:
    """The assignment of mode `phase`, and of the scripts' policies in mode `ultra`.

    Policy `serial` is the scripts' policy if all cases belong to phases. For all other modes and
    policies the result is None.
    """
    documented = all(case.suite in PART_OF for case in cases)
    if mode != "phase" and policy not in POLICIES and not (policy == "serial" and documented):
        return None
    # Imported late: a run without a pool does not need these modules.
    from bench_suites.original_scripts.fix_a import one_after_the_other  # noqa: PLC0415
    from bench_suites.original_scripts.group_key import group_key  # noqa: PLC0415
    from bench_suites.original_scripts.key_rule import any_key, bind  # noqa: PLC0415
    from bench_suites.original_scripts.model_key import model_key  # noqa: PLC0415
    from bench_suites.original_scripts.phase_mode import phase_assignment  # noqa: PLC0415
    from bench_suites.original_scripts.split import split  # noqa: PLC0415

    if policy == "split":
        return split(lanes, cases)
    if policy == "serial":
        return one_after_the_other(pool.models, cases)
    rules = {"model-key": model_key, "group-key": group_key(cases), "even": any_key}
    if mode != "phase":
        return bind(pool, lanes, cases, rules[policy])
    given = {name: config.getoption(f"ultrapar_phase_{name}") for name in ("variant", "scale")}
    own = {name: value for name, value in given.items() if value is not None}
    return phase_assignment(pool, lanes, cases, rule=rules[policy], **own)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        msg = f"must be a number >= 0 (got {text!r})"
        raise argparse.ArgumentTypeError(msg)
    return factor
