"""Makes the pictures of the documentation from real runs on the simulated provider.

    python docs/pictures.py

The program runs the README's two commands in a terminal of 100 columns, in some minutes. It writes
three files next to this one. `run.svg` shows the requests of the small run. `terminal.svg`
shows the terminal of the other run as an animation, and `report.png` its HTML report. Install the
extra `test` and Chromium first.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from html import escape
from itertools import groupby
from pathlib import Path
from termios import TIOCSWINSZ

import pyte
from picture import svg
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
COMMAND = "bench_suites/phase53 -n 15 --ultrapar-pool pool.toml"
A_TENTH = "--ultrapar-repeats 1 --task-type basic_task"
COLUMNS, LINES = 100, 34
TWO_SPACES = "\u00a0\u00a0"
"""Non-breaking spaces, since SVG joins two ordinary ones."""
EVERY_S = 2.0
LAST_S = 8.0
"""Seconds for which the animation shows its last frame."""
MOST_FRAMES = 30
CELL, LINE, EDGE = 7.23, 15, 12
COLOURS = {
    "default": "#d4d4d4",
    "black": "#808080",
    "red": "#f48771",
    "green": "#89d185",
    "brown": "#e5c07b",
    "blue": "#75b6f0",
    "magenta": "#d7a1e0",
    "cyan": "#6cd0d8",
    "white": "#f0f0f0",
}
Line = tuple[tuple[str, str, bool], ...]
"""Runs of characters of a line: text, colour, bold."""
Frames = list[tuple[float, list[Line]]]
"""Seconds since the start, and the lines of the screen at that time."""


def frames(command: list[str], directory: Path) -> Frames:
    """Run a command in a terminal, and return its frames. If it fails, this program exits."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    ours, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    for name in ("CI", "NO_COLOR", "PYTHONUNBUFFERED"):
        environment.pop(name, None)
    process = subprocess.Popen(  # noqa: S603 - a fixed command
        command, stdin=its, stdout=its, stderr=its, cwd=directory, env=environment
    )
    os.close(its)
    begin = time.monotonic()
    seen: Frames = []
    due = 0.0
    while True:
        now = time.monotonic() - begin
        if now >= due:
            seen.append((now, shown(screen)))
            due = now + EVERY_S
        if select.select([ours], [], [], 0.1)[0]:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # Linux reports a closed other end this way
                break
            stream.feed(data)
    if process.wait() != 0:
        sys.exit(f"{' '.join(command)} failed with exit code {process.returncode}")
    seen.append((time.monotonic() - begin, shown(screen)))
    return seen


def shown(screen: pyte.Screen) -> list[Line]:
    """The lines of a screen as runs of characters with the same style."""
    lines = []
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        runs = [
            ("".join(cell.data for cell in same), *style)
            for style, same in groupby(cells, key=lambda cell: (cell.fg, bool(cell.bold)))
        ]
        while runs and not runs[-1][0].strip():
            runs.pop()
        lines.append(tuple(runs))
    return lines


def film(seen: Frames) -> str:
    """The frames as an animated SVG. Viewers without animations show the last frame."""
    step = -(-len(seen) // MOST_FRAMES)
    kept = [*seen[:-1:step], seen[-1]]
    kept = [one for at, one in enumerate(kept) if at == 0 or one[1] != kept[at - 1][1]]
    whole = kept[-1][0] + LAST_S
    rules, groups = [], []
    for number, (begin, lines) in enumerate(kept):
        is_last = number + 1 == len(kept)
        end = whole if is_last else kept[number + 1][0]
        first, last = 100 * begin / whole, 100 * end / whole
        opposite = "" if is_last else f"{last:.3f}%{{visibility:hidden}}"
        rules.append(
            f"@keyframes f{number}{{0%{{visibility:{'hidden' if number else 'visible'}}}"
            f"{first:.3f}%{{visibility:visible}}{opposite}}}"
            f"#f{number}{{animation:f{number} {whole:.1f}s step-end infinite}}"
        )
        state = "" if is_last else ' visibility="hidden"'
        groups.append(f'<g id="f{number}"{state}>{_text(lines)}</g>')
    width, height = COLUMNS * CELL + 2 * EDGE, LINES * LINE + 2 * EDGE
    still = "@media (prefers-reduced-motion){g{animation:none!important}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" '
        'xml:space="preserve">'
    )
    return (
        f"{head}<title>A simulated run in a terminal</title><style>{''.join(rules)}{still}</style>"
        f'<rect width="100%" height="100%" rx="6" fill="#1e1e1e"/>{"".join(groups)}</svg>\n'
    )


def _text(lines: list[Line]) -> str:
    parts = []
    for row, runs in enumerate(lines):
        column = 0
        for text, colour, bold in runs:
            said = text.strip()
            if said:
                at = column + len(text) - len(text.lstrip())
                fill = COLOURS.get(colour, f"#{colour}" if len(colour) == 6 else COLOURS["default"])  # noqa: PLR2004 - RGB
                weight = ' font-weight="bold"' if bold else ""
                parts.append(
                    f'<text x="{EDGE + at * CELL:.1f}" y="{EDGE + (row + 0.8) * LINE:.0f}" '
                    f'textLength="{len(said) * CELL:.1f}" fill="{fill}"{weight}>'
                    f"{escape(said.replace('  ', TWO_SPACES))}</text>"
                )
            column += len(text)
    return "".join(parts)


def photograph(page: Path, picture: Path) -> None:
    """Save a screenshot of a page in a browser, with 1280 x 900 pixels."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("#list .case")
        tab.screenshot(path=picture)
        browser.close()


def main() -> None:
    """Make all pictures again."""
    root = DOCS.parent
    with tempfile.TemporaryDirectory() as temporary:
        # In a copy, since the pictures show its path.
        home = Path(temporary) / "pytest-ultrapar"
        shutil.copytree(root / "bench_suites", home / "bench_suites")
        for name in ("conftest.py", "pool.toml", "pyproject.toml"):
            shutil.copy(root / name, home)
        run = home / ".ultrapar" / "latest"
        command = [str(Path(sys.executable).with_name("pytest")), *COMMAND.split()]
        frames([*command, *A_TENTH.split()], home)
        (DOCS / "run.svg").write_text(svg(run), encoding="utf-8")
        seen = frames(command, home)
        (DOCS / "terminal.svg").write_text(film(seen), encoding="utf-8")
        ultrapar = Path(sys.executable).with_name("ultrapar")
        page = Path(temporary) / "page.html"
        subprocess.run(  # noqa: S603 - a fixed command
            [ultrapar, "report", run, "--out", page], check=True, stdout=subprocess.DEVNULL
        )
        photograph(page, DOCS / "report.png")


if __name__ == "__main__":
    main()
