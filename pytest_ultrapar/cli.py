"""The `ultrapar` command, with one subcommand for each module in `SUBCOMMANDS`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import version
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO

from pytest_ultrapar.errors import EXIT_UNUSABLE, UltraparError
from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBCOMMANDS = (
    "pytest_ultrapar.compare.bench.command",
    "pytest_ultrapar.pool.command",
    "pytest_ultrapar.report.browse.clean_command",
    "pytest_ultrapar.report.browse.runs_command",
    "pytest_ultrapar.report.browse.show_command",
    "pytest_ultrapar.coordinator.check.command",
    "pytest_ultrapar.cluster.command",
    "pytest_ultrapar.compare.command",
    "pytest_ultrapar.compare.gate_command",
    "pytest_ultrapar.coordinator.gateway.command",
    "pytest_ultrapar.merge.command",
    "pytest_ultrapar.report.pages.command",
    "pytest_ultrapar.simulator.command",
)
"""The modules that implement `Subcommand`. Every invocation of `ultrapar` imports all of them,
because `--help` describes them. So keep their module-level imports light, and put heavy imports
inside `run`."""

_OF_PYTEST = {
    "plan": "--ultrapar-plan",
    "resume": "--ultrapar-resume latest",
    "run": "--ultrapar-pool pool.toml",
}
"""Words that users may try as subcommands, and the pytest options to use instead. The words are not
subcommands, because only pytest knows the cases."""
_NOBODY_READS = 128 + signal.SIGPIPE
"""The exit code that shells report if a process writes to a pipe that no process reads."""
_DESCRIPTION = """\
Tools for pytest-ultrapar. Run evaluations with pytest:

    pytest bench_suites/phase53 -n 4 --ultrapar-pool pool.toml
"""


class Subcommand(Protocol):
    """The interface of a module listed in `SUBCOMMANDS`."""

    NAME: str
    SUMMARY: str
    """One line for `ultrapar --help`."""
    DESCRIPTION: str
    """The text that precedes the options in `ultrapar NAME --help`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subcommand's options.

        If you set a default for `passed_on`, the subcommand receives all undeclared arguments under
        that name. Otherwise the command refuses undeclared arguments.
        """

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand and return the exit code.

        Raises:
            UltraparError: The command prints one line on stderr and ends with exit code 4.
            OSError: As for `UltraparError`. Any other exception has the same effect, but is
                reported as an internal error.
        """


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ultrapar` and return its exit code. The console script calls this.

    The exit code is 4 if any input or output cannot be used. It is not 1, because 1 means that a
    rule or a lane failed.
    """
    if sys.stdout is None:
        return _not_written("stdout is closed")
    stdout = _Stdout(sys.stdout)
    try:
        with redirect_stdout(stdout):
            try:
                return _run(argv)
            finally:
                # If this were left to the interpreter, it would be too late to change the exit
                # code.
                stdout.flush()
    except _NotWrittenError as failed:
        _drop_output()
        if isinstance(failed.error, BrokenPipeError):
            # The reader has read enough and has closed the pipe. `head` does this, for example.
            return _NOBODY_READS
        return _not_written(f"cannot write to stdout: {failed.error.strerror}")


class _NotWrittenError(Exception):
    """Stdout cannot be written to. Raised instead of `OSError`, which a file could also raise."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Stdout:
    """A text stream whose write errors can be distinguished from all other errors."""

    def __init__(self, wrapped: TextIO) -> None:
        self._wrapped = wrapped

    def write(self, text: str) -> int:
        try:
            return self._wrapped.write(text)
        except OSError as error:
            raise _NotWrittenError(error) from error

    def flush(self) -> None:
        try:
            self._wrapped.flush()
        except OSError as error:
            raise _NotWrittenError(error) from error

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the stream
        return getattr(self._wrapped, name)


def _not_written(why: str) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"ultrapar: error: {why}\n")
    return EXIT_UNUSABLE


def _drop_output() -> None:
    """Discard the remaining output, because the interpreter flushes again when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in _OF_PYTEST:
        parser.error(f"{words[0]} is not a subcommand; use pytest ... {_OF_PYTEST[words[0]]}")
    arguments, rest = parser.parse_known_args(words)
    if "passed_on" in arguments:
        arguments.passed_on = rest
    elif rest:
        arguments.parser.refuse(rest)
    subcommand: Subcommand = arguments.subcommand
    try:
        return subcommand.run(arguments)
    except (UltraparError, OSError) as error:
        sys.stderr.write(f"ultrapar {subcommand.NAME}: error: {visible(str(error))}\n")
        return EXIT_UNUSABLE
    except _NotWrittenError:
        raise
    except Exception as error:  # noqa: BLE001 - Python's exit code 1 would mean that a rule failed
        last = extract_tb(error.__traceback__)[-1]
        said = visible(f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})")
        sys.stderr.write(
            f"ultrapar {subcommand.NAME}: error: internal error of pytest-ultrapar"
            f" {version('pytest-ultrapar')}, please report it: {said}\n"
        )
        return EXIT_UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ultrapar",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"pytest-ultrapar {version('pytest-ultrapar')}"
    )
    # argparse also uses the class of this parser for the subcommands.
    subparsers = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    for name in SUBCOMMANDS:
        subcommand: Subcommand = import_module(name)
        child = subparsers.add_parser(
            subcommand.NAME,
            help=subcommand.SUMMARY,
            description=subcommand.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        subcommand.add_arguments(child)
        child.set_defaults(subcommand=subcommand, parser=child)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End with exit code 4, not with argparse's 2, which means "interrupted" in pytest."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_UNUSABLE, f"{self.prog}: error: {message}\n")

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """End as `error` does, but also list the options that exist."""
        own = [action.option_strings[-1] for action in self._actions if action.option_strings]
        known = ", ".join(option for option in own if option != "--help")
        self.error(f"unrecognized arguments: {' '.join(rest)}; the options are {known}")


if __name__ == "__main__":
    sys.exit(main())
