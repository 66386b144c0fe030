"""`report.html`: the figures of a run, their plots and transcripts, as one file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pages.figures import read_figures
from pytest_ultrapar.pages.plots import (
    costs_plot,
    curves_plot,
    first_tokens_plot,
    lanes_plot,
    limits_plot,
    passes_plot,
    time_plot,
)
from pytest_ultrapar.pages.transcripts import pack
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.publish import write_whole
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED, summary_sections
from pytest_ultrapar.report.text import counted, duration, percent, visible
from pytest_ultrapar.store.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import jinja2

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.pages.figures import Figures
    from pytest_ultrapar.store.manifest import Manifest

PAGE = "report.html"
_ROOM = files("pytest_ultrapar.pages")


class Tile(msgspec.Struct, frozen=True):
    """A figure of the whole run; `source` says where it stands in the run's files."""

    label: str
    value: str
    note: str
    source: str


def write_page(run_dir: Path, path: Path) -> None:
    """Write the page of a run whose tables are made.

    Args:
        run_dir: The run's directory.
        path: The page; an earlier one stays where this one cannot be written whole.

    Raises:
        ConfigError: The run has no tables yet, or they are damaged.
        ResultsError: The page cannot be written.
    """
    write_whole(path, render(run_dir))


def render(run_dir: Path) -> bytes:
    """The page as HTML, in UTF-8.

    Raises:
        ConfigError: The run has no tables yet, or they are damaged.
        ResultsError: A file of it cannot be read.
    """
    manifest, summary = read_manifest(run_dir), read_summary(run_dir)
    if summary is None:
        msg = (
            f"{run_dir} has no results yet: it is going on, or was ended; finish it with "
            "--ultrapar-resume, or make its tables with "
            f"python -m pytest_ultrapar.analysis.compact {run_dir}"
        )
        raise ConfigError(msg)
    figures = read_figures(run_dir, manifest)
    packed = pack(run_dir, [case.case_id for case in figures.cases])
    plots = [
        plot
        for plot in (
            passes_plot(figures.passes),
            costs_plot(figures.costs, manifest.currency),
            time_plot(summary.attribution),
            lanes_plot(figures.lanes),
            limits_plot(figures.limits),
            curves_plot(figures.curves),
            first_tokens_plot(figures.first_tokens),
        )
        if plot is not None
    ]
    scripts = [_vega("vega.min.js"), _vega("vega-lite.min.js"), _interpreter(), _own("report.js")]
    style = _own("report.css")
    outcomes = list(dict.fromkeys(case.outcome for case in figures.cases))
    data = {
        "cases": [
            msgspec.structs.replace(case, shard=packed.of_case.get(case.case_id))
            for case in figures.cases
        ],
        "models": figures.models,
        "dimensions": [{"name": one.name, "values": one.values} for one in figures.dimensions],
        "plots": {plot.key: plot.spec for plot in plots},
    }
    text = embedded(data)
    # 100,000 cases are as large again as the page that has them.
    del data
    figures = msgspec.structs.replace(figures, cases=[])
    pieces = template().generate(
        policy=_policy(scripts, style),
        scripts=[_unescaped(script) for script in scripts],
        style=_unescaped(style),
        data=_unescaped(text),
        parts=packed.parts,
        n_left_out=packed.n_left_out,
        manifest=manifest,
        summary=summary,
        simulated=SIMULATED if summary.simulated else "",
        tiles=list(_tiles(summary, figures)),
        figures=figures,
        plots=plots,
        sections=list(summary_sections(summary, manifest.lanes, directory=str(run_dir))),
        settings=_settings(manifest),
        outcomes=outcomes,
    )
    # Piece by piece: one character beyond the BMP makes four bytes of each in a text.
    return b"".join(piece.encode("utf-8", "replace") for piece in pieces)


@cache
def template() -> jinja2.Template:
    """That of the page."""
    import jinja2  # noqa: PLC0415 - only here

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": percent, "duration": duration}
    return environment.from_string(_own("report.html.j2"))


def embedded(data: object) -> str:
    """JSON for a script element, which nothing in it can end."""
    text = msgspec.json.encode(data)
    return text.replace(b"<", rb"\u003c").replace(b">", rb"\u003e").decode()


def _unescaped(text: str) -> Any:  # noqa: ANN401 - jinja2 has no types of its own here
    import markupsafe  # noqa: PLC0415 - only here

    return markupsafe.Markup(text)  # noqa: S704 - our own files, and what `embedded` made harmless


def _policy(scripts: list[str], style: str) -> str:
    """What the page may do: run exactly these scripts, and send or load nothing."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _own(name: str) -> str:
    return _ROOM.joinpath(name).read_text(encoding="utf-8")


def _vega(name: str) -> str:
    return _ROOM.joinpath("vendor", name).read_text(encoding="utf-8")


def _interpreter() -> str:
    """Vega's interpreter of expressions, published as a module: a page of one file has none."""
    text = _vega("vega-interpreter.js")
    text = text.replace(
        "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';",
        "const { ascending, isString, DisallowedObjectProperties } = vega;",
    )
    text = text.replace(
        "export { expression as expressionInterpreter };",
        "globalThis.expressionInterpreter = expression;",
    )
    return f"(() => {{\n{text}\n}})();"


def _tiles(summary: RunSummary, figures: Figures) -> Iterator[Tile]:
    statistics = summary.statistics
    counts = statistics.counts
    if statistics.n_graded:
        share = counts["solved"] / statistics.n_graded
        note = f"{counts['solved']:,} of {counted(statistics.n_graded, 'graded case')}"
        yield Tile("solved", percent(share), note, "results: outcome")
    yield Tile(
        "coverage",
        percent(statistics.coverage),
        f"{statistics.n_graded:,} of {counted(statistics.n_planned, 'planned case')}",
        "summary.json: statistics.coverage",
    )
    lost = counts["infra"] + counts["error"]
    yield Tile("without a grade", f"{lost:,}", "infra and error", "results: outcome")
    if statistics.makespan_s is not None:
        note = f"bound {duration(summary.bound_s)}" if summary.bound_s is not None else ""
        yield Tile("time", duration(statistics.makespan_s), note, "summary.json: statistics")
    if summary.efficiency is not None:
        note = visible(summary.binding or "")
        yield Tile("efficiency", percent(summary.efficiency), note, "summary.json: efficiency")
    yield Tile("requests", f"{summary.n_requests:,}", "", "attempts: rows")
    if summary.cost is not None:
        solved = counts["solved"]
        currency = summary.cost.currency
        each = f"{money(summary.cost.total / solved, currency)} per solved case" if solved else ""
        value = money(summary.cost.total, currency)
        yield Tile("cost", value, each, "attempts: cost")


def _settings(manifest: Manifest) -> Section:
    rows = [(one.name, str(one.value), one.origin) for one in manifest.effective]
    rows += [(f"version of {name}", text, "installed") for name, text in manifest.versions.items()]
    shown = tuple(tuple(visible(text) for text in row) for row in rows)
    return Section("Settings", ("name", "value", "from"), shown)
