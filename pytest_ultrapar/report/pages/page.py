"""Make `report.html`: the figures, plots and transcripts of a run, in one file."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.run_summary import all_of, read_summary
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.pages.figures import read_figures
from pytest_ultrapar.report.pages.lanes import N_SLICES
from pytest_ultrapar.report.pages.page_template import Tile, embedded, framed
from pytest_ultrapar.report.pages.plots import (
    costs_plot,
    curves_plot,
    lanes_plot,
    limit_uses_plot,
    limits_plot,
    passes_plot,
    time_plot,
)
from pytest_ultrapar.report.pages.snapshot import Readable
from pytest_ultrapar.report.pages.transcripts import pack
from pytest_ultrapar.report.report_file import run_sections
from pytest_ultrapar.report.rerun_commands import rerun_command
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED, mean_text, waits_line
from pytest_ultrapar.report.text import columns_of, counted, duration, listed, percent
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.system.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.analysis.statistics import RunStatistics
    from pytest_ultrapar.report.pages.figures import Figures
    from pytest_ultrapar.report.pages.models import ComparedWithBest
    from pytest_ultrapar.store.manifest import Manifest

_ANSWERS = "The time that all answers in a graded case took together, excluding waits."
_STREAMED = "The time from a request to the first token of its streamed answer."
_MOST_SCORES = 3
"""At most this many scores get a tile of their own. A table shows all scores."""
TEMPLATE = "report/pages/report.html.j2"


def write_page(run_dir: Path, path: Path, found: Readable | None = None) -> None:
    """Write the page of a run that has tables.

    Args:
        run_dir: The run's directory.
        path: The file to write. If writing fails, an earlier page is not changed.
        found: The directory with the run's tables, and the state of the run; None for a finished
            run.

    Raises:
        ConfigError: The run has no tables yet, or they are damaged.
        ResultsError: The page cannot be written.
    """
    write_whole(path, render(run_dir, found))


def render(run_dir: Path, found: Readable | None = None) -> bytes:
    """Return the page as HTML in UTF-8. The arguments are the same as in `write_page`.

    Raises:
        ConfigError: The run has no tables yet, or they are damaged.
        ResultsError: One of the run's files cannot be read.
    """
    tables, state, goes_on = found or Readable(run_dir, "")
    manifest, summary = read_manifest(tables), read_summary(tables)
    if summary is None:
        refuse(f"{run_dir} has no results yet")
    figures, statistics = read_figures(tables, manifest), summary.statistics
    drawn = (
        passes_plot(figures.passes),
        costs_plot(figures.costs, manifest.currency),
        time_plot(summary.attribution, waits_line(manifest.lanes, summary.audit)),
        lanes_plot(figures.lanes),
        limit_uses_plot(figures.limit_uses),
        limits_plot(figures.limits, max((n.slice_s for n in figures.lanes), default=0) * N_SLICES),
        curves_plot(figures.curves, "curves", "Response times", _ANSWERS),
        curves_plot(figures.first_tokens, "first-tokens", "Time to first token", _STREAMED),
    )
    plots = [plot for plot in drawn if plot is not None]
    outcomes = figures.cases["outcome"].texts
    case_ids = figures.cases["case_id"]
    packed = pack(tables, case_ids)
    is_others = manifest.asked_by_others or manifest.merged is not None
    data = {
        "cases": figures.cases,
        "params": figures.params,
        "at": figures.at,
        "parts": figures.parts,
        "shards": [packed.of_case.get(case_id) for case_id in case_ids],
        "models": figures.models,
        "outcomes": outcomes,
        "dimensions": [{"name": one.name, "values": one.values} for one in figures.dimensions],
        "again": None if is_others else rerun_command(manifest),
    }
    return framed(
        TEMPLATE,
        "report/pages/report.js",
        embedded(data),
        parts=packed.parts,
        n_left_out=packed.n_left_out,
        state=state,
        manifest=manifest,
        summary=summary,
        simulated=SIMULATED if summary.simulated else "",
        tiles=list(_tiles(summary, manifest, figures, goes_on=goes_on)),
        suite=listed(figures.suites, 2),
        outcome=_outcome(statistics),
        command="" if is_others else shlex.join(["pytest", *manifest.arguments]),
        scores=_scores(summary),
        figures=figures,
        plots=plots,
        sections=list(run_sections(summary, manifest, run_dir, goes_on=goes_on)),
        compared_with_best=_compared_with_best(figures),
        settings=_settings(manifest),
        outcomes=outcomes,
    )


def _outcome(statistics: RunStatistics) -> str:
    if statistics.n_rated < statistics.n_graded:
        return f"{statistics.n_graded:,} of {counted(statistics.n_planned, 'case')} graded"
    return f"{statistics.counts['solved']:,} of {statistics.n_graded:,} solved"


def _tiles(
    summary: RunSummary, manifest: Manifest, figures: Figures, *, goes_on: bool
) -> Iterator[Tile]:
    statistics = summary.statistics
    counts = statistics.counts
    if (share := statistics.solved_rate) is not None:
        note = ", ".join(f"{counts[one]:,} {one}" for one in ("solved", "partial", "unsolved"))
        note = f"{note} of {counted(statistics.n_rated, 'graded case')}"
        note += "; may change, because slow cases finish last" if goes_on else ""
        yield Tile("solved", percent(share), note, "results: outcome")
    for name, score in [*statistics.scores.items()][:_MOST_SCORES]:
        note = f"mean over {counted(score.n, 'graded case')}"
        yield Tile(name, f"{score.mean:.3f}", note, f"results: score.{name}")
    yield Tile(
        "coverage",
        percent(statistics.coverage),
        f"{statistics.n_graded:,} of {counted(statistics.n_planned, 'planned case')};"
        f" {counts['infra']:,} infra, {counts['error']:,} error",
        "summary.json: statistics.coverage",
    )
    if statistics.makespan_s is not None:
        notes = [f"lower bound {duration(summary.bound_s)}"] if summary.bound_s is not None else []
        if _is_of_one_piece(manifest):
            notes.append(
                f"twice as many repetitions take at most {duration(2 * statistics.makespan_s)}"
            )
        value = duration(statistics.makespan_s)
        yield Tile("time", value, "; ".join(notes), "summary.json: statistics")
    if summary.efficiency is not None and statistics.n_timed > 1:
        bound_by = summary.binding or ""
        yield Tile("efficiency", percent(summary.efficiency), bound_by, "summary.json: efficiency")
    # While a run is in progress, its manifest has no lanes yet.
    limited = sum(lane.n_rate_limited for lane in manifest.lanes) or figures.n_refused
    failed = sum(lane.n_failed for lane in manifest.lanes)
    note = f"{limited:,} rate limited"
    note += f", {failed:,} failed" if manifest.lanes else ""
    yield Tile("requests", f"{summary.n_requests:,}", note, "attempts: rows; manifest.json: lanes")
    if summary.cost is not None:
        currency, notes = summary.cost.currency, []
        if solved := counts["solved"]:
            notes.append(f"{money(summary.cost.total / solved, currency)} per solved case")
        if _is_of_one_piece(manifest):
            notes.append(
                f"twice as many repetitions cost about {money(2 * summary.cost.total, currency)}"
            )
        value = money(summary.cost.total, currency)
        yield Tile("cost", value, "; ".join(notes), "attempts: cost")


def _scores(summary: RunSummary) -> Section:
    """Return the mean scores by the first name in `summary_by`, which is usually the model."""
    names = summary.statistics.scores
    found = by_key((cell.names[0], cell) for cell in summary.cells)
    means = {group: all_of(own).scores for group, own in found.items()}
    rows = [
        (group, *(mean_text(own[name]) if name in own else "-" for name in names))
        for group, own in means.items()
    ]
    return Section("Mean scores", (summary.summary_by[0], *names), tuple(rows))


def _is_of_one_piece(manifest: Manifest) -> bool:
    """Whether the time and the cost of this run cover all its cases.

    They do not if the run was resumed, has not ended, or uses cases or answers from another run.
    """
    taken = (manifest.reused, manifest.regraded, manifest.replayed)
    return manifest.ended_at is not None and not manifest.resumed and not any(taken)


def _compared_with_best(figures: Figures) -> Section | None:
    """Return a section that compares the best model with the others; None without others."""
    if not figures.compared_with_best:
        return None
    header, rows = columns_of(
        [
            {
                "model": one.model,
                "common cases": f"{one.n:,}",
                "solved only by this model": f"{one.n_gained:,}",
                "solved only by the best model": f"{one.n_lost:,}",
                "difference": f"{100 * one.difference:+.0f}",
                "95 % interval": (
                    "-"
                    if one.low is None or one.high is None
                    else f"{100 * one.low:+.0f} to {100 * one.high:+.0f}"
                ),
                "is the best model better?": _verdict(one),
            }
            for one in figures.compared_with_best
        ]
    )
    title = f"Comparison with {figures.best}, the model with the highest solve rate"
    return Section(title, header, tuple(rows))


def _verdict(one: ComparedWithBest) -> str:
    """Say whether the best model is better than this one."""
    if not one.n_gained and not one.n_lost:
        return "equal"
    if one.high is None:
        return "unknown"
    return "yes" if one.high < 0 else "may be chance"


def _settings(manifest: Manifest) -> Section:
    """Return a section with a row for each setting and each version.

    The run's own settings come first, then the pool's, then the defaults.
    """
    ranks = {manifest.pool_path.rpartition("/")[2]: 1, "default": 2}
    settings = sorted(manifest.effective, key=lambda one: ranks.get(one.origin, 0))
    rows = [(one.name, str(one.value), one.origin) for one in settings]
    rows += [(f"version of {name}", text, "installed") for name, text in manifest.versions.items()]
    return Section("Settings and versions", ("name", "value", "from"), tuple(rows))
