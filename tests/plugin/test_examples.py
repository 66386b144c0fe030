"""The suites of `examples/`, and of the pages for users of other tools, unchanged."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.run_summary import read_summary
from tests.running import run_pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("coming-from-*.md"))
POOL = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 5 }
[[provider.model]]
name = "m"
"""


def ran(folder: Path, name: str, n_workers: int) -> list[dict[str, object]]:
    """The rows of an example that was run in a folder, at its own port."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    example = folder / "examples" / name
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for path in (example / "pool.toml", example / "conftest.py"):
        text = path.read_text(encoding="utf-8")
        (usual,) = {*re.findall(r"\b84\d\d\b", text)}
        path.write_text(text.replace(usual, port), encoding="utf-8")
    pool = f"--ultrapar-pool=examples/{name}/pool.toml"
    run_pytest(folder, "-W", "error", f"-n{n_workers}", f"examples/{name}", pool, code=0)
    return pq.read_table(folder / ".ultrapar" / "latest" / "results.parquet").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [0, 2])
def test_conversations_are_graded_by_their_final_state(tmp_path, n_workers):
    rows = ran(tmp_path, "conversations", n_workers)
    assert {row["param_id"]: row["outcome"] for row in rows} == {
        "move": "solved",
        "cancel": "solved",
        "full": "solved",
        "second-choice": "solved",
        "no-booking": "solved",
        "of-another": "unsolved",
    }
    assert {row["label.ended"] for row in rows} == {"yes"}


@pytest.mark.slow
def test_programs_are_graded_by_their_tests(tmp_path):
    rows = ran(tmp_path, "programs", 2)
    assert {row["outcome"] for row in rows if row["model"] == "careful"} == {"solved"}
    hasty = {row["param_id"]: row["outcome"] for row in rows if row["model"] == "hasty"}
    assert {name: one for name, one in hasty.items() if one != "solved"} == {
        "rotated": "partial",
        "balanced": "partial",
        "runs": "unsolved",
        "collatz_steps": "unsolved",
    }
    assert [row["kind"] for row in rows if row["kind"]] == ["time_limit"]


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [0, 2])
def test_two_turns_have_ratings_and_strengths(tmp_path, n_workers):
    rows = ran(tmp_path, "two_turns", n_workers)
    assert {row["outcome"] for row in rows} == {"scored"}
    assert len(rows) == 36
    figures = {
        one.name: (one.value, one.interval)
        for one in read_summary(tmp_path / ".ultrapar" / "latest").figures
    }
    terse, plain, lists = (
        figures[f"strength_{name}"] for name in ("terse", "plain", "fond-of-lists")
    )
    assert terse[0] < plain[0] < lists[0]
    assert sum(one[0] for one in (terse, plain, lists)) == pytest.approx(3000)
    assert all(one[1] is not None and one[1][0] < one[0] < one[1][1] for one in (terse, plain))


@pytest.mark.slow
def test_ported_suites_of_the_pages_run_unchanged(tmp_path):
    """All in one run, because the start takes the most time."""
    assert len(PAGES) == 5
    tmp_path.joinpath("pool.toml").write_text(POOL, encoding="utf-8")
    for number, page in enumerate(PAGES):
        (suite,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        tmp_path.joinpath(f"test_{number}.py").write_text(suite, encoding="utf-8")
    run_pytest(tmp_path, "-W", "error", "-n0", "--ultrapar-pool=pool.toml", code=0)
    rows = pq.read_table(tmp_path / ".ultrapar" / "latest" / "results.parquet").to_pylist()
    assert len({row["file"] for row in rows}) == 5
    assert {row["outcome"] for row in rows} == {"solved"}
