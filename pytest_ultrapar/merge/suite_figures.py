"""Compute the suite's figures again for a merged run, from the rows of all parts."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.session.suite_figures import HOOK, add_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.merge.part_files import Source


def add_suite_figures(
    sources: Sequence[Source], stage: Path, summary: RunSummary
) -> tuple[RunSummary, tuple[str, ...]]:
    """Let the suite in the working directory compute its figures again, if any part has figures.

    Args:
        sources: The parts.
        stage: The directory of the merged run, which must contain its tables.
        summary: The summary of the merged run.

    Returns:
        The summary with the figures, and sentences about missing figures.
    """
    of_parts = filter(None, (read_summary(source.directory) for source in sources))
    names = dict.fromkeys(one.name for part in of_parts for one in part.figures)
    if not names:
        return summary, ()
    files = {file for source in sources for file in source.part.manifest.files}
    folders = {str(Path(file).parent) for file in files if Path(file).name == "conftest.py"}
    asking = _Asking(stage, summary)
    with redirect_stdout(StringIO()):
        # Ignore options in the suite's configuration, such as -n, because no test runs here.
        arguments = ["--rootdir", os.curdir, "-o", "addopts=", "-o", "ultrapar_pool="]
        pytest.main([*arguments, *filter(os.path.isdir, sorted(folders))], [asking])
    missing = names.keys() - {one.name for one in asking.summary.figures}
    faults = asking.faults
    if missing and not faults:
        faults = (
            f"the merged run lacks figures that its parts have ({', '.join(sorted(missing))}): no "
            f"{HOOK} in this folder computes them; run ultrapar merge in the suite's root folder",
        )
    return asking.summary, faults


class _Asking:
    """A plugin that computes figures, instead of letting pytest collect and run tests."""

    def __init__(self, run_dir: Path, summary: RunSummary) -> None:
        self._run_dir = run_dir
        self.summary = summary
        self.faults: tuple[str, ...] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Compute the figures. pytest calls this after it loads conftests, instead of a session."""
        self.summary, self.faults = add_figures(config, self._run_dir, self.summary)
        return 0
