"""`ultrapar gate`: check a finished run against rules, for example in CI."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_ultrapar.compare.rules import (
    DEFAULT_RULE_OF_MODEL,
    DEFAULT_RULES,
    GRAMMAR,
    METRICS,
    parse_rule,
)
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.report.sections import MOST_OF_A_COMMENT, markdown_within, text_lines

if TYPE_CHECKING:
    import argparse

NAME = "gate"
SUMMARY = (
    "check a finished run against rules, with or without a baseline; exit code 1 if a rule failed"
)
_WIDTH = max(len(metric.name) for metric in METRICS)
DESCRIPTION = f"""\
Check a finished run against rules, and print a table of the results. The exit code is 0 if no rule
fails, 1 if a rule fails, and 4 if a run or rule cannot be used.

    ultrapar gate latest --rule 'solved_rate>=0.7' --rule 'latency.p95<=2.5s'
    ultrapar gate latest --baseline runs/main --rule 'throughput>=-10%' --rule same_answers
    ultrapar gate latest --baseline runs/main

If RUN is a directory from ultrapar bench, the gate checks the run in one mode: ultra if the bench
has it, otherwise phase, otherwise rotate. To check the run in another mode, pass that run's
directory, such as .ultrapar/bench-1/phase.

    ultrapar gate .ultrapar/bench-1 --rule 'speedup>=3' --rule 'speedup[model=small]>=2'

{GRAMMAR}
Metrics:
{"".join(f"    {metric.name:<{_WIDTH}}  {metric.says}{chr(10)}" for metric in METRICS)}
With --baseline and without --rule, the rules are {", ".join(DEFAULT_RULES)}
and, for each model, {DEFAULT_RULE_OF_MODEL}. docs/explanation/comparing.md shows the
smallest effects that these rules detect.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar gate`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="the run to check: its directory, its id, or latest; or the directory of a bench",
    )
    parser.add_argument(
        "--baseline", metavar="RUN", help="the run to compare with, specified like RUN"
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="RULE",
        help="a rule in the form described above; may be repeated (default with --baseline: the "
        "rules named above)",
    )
    parser.add_argument(
        "--undecided",
        choices=Options.gate_undecided.choices,
        default=Options.gate_undecided.default,
        help="whether undecided rules pass or fail (default: pass)",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as GitHub-flavoured Markdown"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the table of results; return 0 if the run passes, otherwise 1.

    Raises:
        ConfigError: A rule or a run cannot be used.
    """
    rules = [parse_rule(text) for text in arguments.rule]
    if not rules and arguments.baseline is None:
        refuse("no rule is given: add --rule RULE, or --baseline RUN for the default rules")

    # Import the structs of a whole run here: this takes 60 ms, and `--help` does not need them.
    from pytest_ultrapar.analysis.measured_run import find_measured_run  # noqa: PLC0415
    from pytest_ultrapar.compare.gate import judge  # noqa: PLC0415
    from pytest_ultrapar.compare.report import gate_section  # noqa: PLC0415

    baseline = find_measured_run(arguments.baseline) if arguments.baseline is not None else None
    run = find_measured_run(arguments.run)
    for one in (run, baseline):
        if one is None or one.manifest.merged is not None:
            continue
        manifest = one.manifest
        if manifest.shard is not None or manifest.cluster_run is not None:
            is_part = f"shard {manifest.shard}" if manifest.shard else f"host {manifest.host}"
            refuse(
                f"{one.directory} is from {is_part} of a run, but a gate checks whole runs: merge "
                "the run's parts (ultrapar merge) and check the merged run"
            )
    result = judge(rules, run, baseline, undecided=arguments.undecided)
    sections = [gate_section(result)]
    if arguments.markdown:
        sys.stdout.write(markdown_within(sections, MOST_OF_A_COMMENT))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in text_lines(sections)))
    return 1 if result.failed else 0
