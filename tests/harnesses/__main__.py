"""Seven other tools at the same time through the gateway: `python -m tests.harnesses --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.harnesses import TOOLS, install
from tests.harnesses.scenes import Outcome, ctrl_c, direct, queue, storm

HEAD = "tool | requests | answered | refused | seconds from the line | exit code | same figures"
HEAD_OF_CTRL_C = "tool | requests | outcomes | Ctrl-C | end after s | exit code"


def _line(name: str, scene: str, found: Outcome, alone: tuple[int, object]) -> str:
    n, outcomes = len(found.rows), found.outcomes
    if scene == "ctrl-c":
        said = ", ".join(f"{count} {word}" for word, count in outcomes.items())
        cells = [said, found.n_presses, f"{found.took_s:.1f}", found.code]
    else:
        is_same = (found.code, found.found) == alone
        refused = n - outcomes["solved"]
        took = f"{found.took_s:.0f}"
        cells = [outcomes["solved"], refused, took, found.code, "yes" if is_same else "NO"]
    return " | ".join(map(str, [name, n, *cells]))


def _played(name: str, scene: str, minutes: int, environments: Path, home: Path) -> str:
    play = {"storm": storm, "ctrl-c": ctrl_c, "queue": partial(queue, minutes=minutes)}[scene]
    folder = home / name.replace(" ", "-")
    folder.mkdir()
    try:
        found = play(name, environments, folder / "ours")
        alone = (0, None) if scene == "ctrl-c" else direct(name, environments, folder / "direct")
    except Exception as error:  # noqa: BLE001 - the others continue
        return f"{name} | {type(error).__name__}: {error}"
    folder.joinpath("said").write_text(found.said, encoding="utf-8")
    return _line(name, scene, found, alone)


def main() -> None:
    """Play a scene with all tools at the same time, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.harnesses")
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"tools: {', '.join(TOOLS)}")
    parser.add_argument("--scene", choices=("queue", "storm", "ctrl-c"), default="queue")
    parser.add_argument("--minutes", type=int, default=4, help="minutes of the queue (default: 4)")
    parser.add_argument("--environments", type=Path, help="directory in which tools are installed")
    parser.add_argument("--keep", type=Path, help="an empty folder for their output")
    options = parser.parse_args()
    tools = options.tools or TOOLS
    with tempfile.TemporaryDirectory() as made:
        home, environments = options.keep or Path(made), options.environments or Path(made, "tools")
        for name in tools:
            install(name, environments.absolute())
        sys.stdout.write(f"{HEAD_OF_CTRL_C if options.scene == 'ctrl-c' else HEAD}\n")
        with ThreadPoolExecutor(len(tools)) as pool:
            for line in pool.map(
                lambda name: _played(
                    name, options.scene, options.minutes, environments.absolute(), home.absolute()
                ),
                tools,
            ):
                sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
