"""What pytest must not be told when every mode runs the same cases, and why; pure.

The command line is looked at before anything starts, by `bench.arguments`; what comes from
`addopts` and PYTEST_ADDOPTS is seen in pytest itself, by `bench.whole_runs`.
"""

from __future__ import annotations

_OTHER_CASES = "it selects by what ran before, and all modes must run the same cases"
_NOTHING_RUNS = "it runs nothing; pytest itself knows it"
_OWN_RUNS = "every mode is a run of its own from its beginning"
_SERIAL = "bench runs all cases serially where serial is among --modes"
_ONE_FILE = "each mode would write over the file of the one before"
_ONE_RUN = "a gate judges one run: ultrapar gate DIR judges the bench when it has ended"

ON_THE_COMMAND_LINE = {
    "--ultrapar-mode": "--modes names the modes",
    "--ultrapar-out": "--out DIR names the directory, and each mode has its own below it",
    "--ultrapar-resume": _OWN_RUNS,
    "--ultrapar-baseline": _SERIAL,
    "--ultrapar-gate": _ONE_RUN,
    "--ultrapar-gate-baseline": _ONE_RUN,
    "--ultrapar-gate-undecided": _ONE_RUN,
    **dict.fromkeys(
        (
            *("--lf", "--last-failed", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"),
            *("--sw-reset", "--stepwise-reset"),
        ),
        _OTHER_CASES,
    ),
    **dict.fromkeys(
        (
            *("--collect-only", "--collectonly", "--co", "--ultrapar-plan"),
            *("--setup-plan", "--setup-only", "--setuponly", "--setupplan", "--fixtures"),
            *("--funcargs", "--fixtures-per-test", "--markers", "--cache-show"),
            *("--help", "-h", "--version", "-V"),
        ),
        _NOTHING_RUNS,
    ),
    **dict.fromkeys(
        (
            *("--junit-xml", "--junitxml", "--log-file", "--report-log", "--html"),
            "--benchmark-json",
        ),
        _ONE_FILE,
    ),
}
"""Options as they are written, `=VALUE` left out."""

FROM_CONFIGURATION = {
    "lf": ("--lf", _OTHER_CASES),
    "stepwise": ("--stepwise", _OTHER_CASES),
    "stepwise_skip": ("--stepwise-skip", _OTHER_CASES),
    "stepwise_reset": ("--stepwise-reset", _OTHER_CASES),
    "setuponly": ("--setup-only", _NOTHING_RUNS),
    "ultrapar_resume": ("--ultrapar-resume", _OWN_RUNS),
    "ultrapar_baseline": ("--ultrapar-baseline", _SERIAL),
    "ultrapar_gate": ("--ultrapar-gate", _ONE_RUN),
    "ultrapar_gate_baseline": ("--ultrapar-gate-baseline", _ONE_RUN),
    "ultrapar_gate_undecided": ("--ultrapar-gate-undecided", _ONE_RUN),
    "xmlpath": ("--junit-xml", _ONE_FILE),
    "log_file": ("--log-file", _ONE_FILE),
}
"""The same by where pytest keeps them; what bench sets itself is set after `addopts`."""
