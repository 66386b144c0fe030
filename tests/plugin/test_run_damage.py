"""Damage random files of a run, one at a time, and use the run.

With any damaged file, each command ends without a traceback, shows no wrong row, omits no row
without a message, and sends nothing above the budget. RUN_DAMAGES sets how often each file is
damaged. Each damage is tried with the commands that read a run, a tenth also with whole pytest
sessions.
"""

from __future__ import annotations

import os
import random
import shutil
import traceback
from pathlib import Path

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.pool.money import UNITS, ModelPrice
from pytest_ultrapar.report.browse.run_cases import EpisodeReader, read_run_cases
from pytest_ultrapar.store.table_rows import read_rows
from tests.scripted_server import WORDS

pytestmark = pytest.mark.slow

N_DAMAGES = int(os.environ.get("RUN_DAMAGES", "4"))
SESSIONS = 10
PRICE = ModelPrice("p", "m", 3.0, 11.0)
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt, n) -> str:
    return (await llm.chat([{{"role": "user", "content": prompt}}], max_tokens=100)).text

@pytest.mark.parametrize(("n", "prompt"), {cases!r})
def test_it(answer, n, grade): grade("{outcome}", n=n)
"""
COLUMNS = ("case_id", "suite", "model", "param.n", "param.prompt", "outcome", "score.n", "cost")
KINDS = ("bit", "byte", "cut", "foreign", "missing", "doubled")


def damage(path: Path, other: Path, draw: random.Random) -> str | None:
    """Damage a file; return a description, or None if nothing changed."""
    kind, content = draw.choice(KINDS), path.read_bytes()
    changed = bytearray(content)
    at = draw.randrange(len(content)) if content else 0
    match kind:
        case "missing":
            path.unlink()
            return kind
        case "bit" if content:
            changed[at] ^= 1 << draw.randrange(8)
        case "byte" if content:
            digits = [n for n, byte in enumerate(content) if 48 <= byte < 58]
            at = draw.choice(digits) if digits and draw.random() < 0.5 else at
            changed[at] = draw.choice(b"0123456789") if draw.random() < 0.5 else draw.randrange(256)
        case "cut":
            del changed[at:]
        case "doubled":
            changed += content
        case "foreign" if other.is_file():
            changed = bytearray(other.read_bytes())
    if bytes(changed) == content:
        return None
    path.write_bytes(changed)
    return f"{kind} at {at}"


class Judge:
    """The run before it was damaged, to compare with."""

    def __init__(self, project, run: Path, capfd) -> None:
        self.project, self.run, self.capfd = project, run, capfd
        self.shown = self._shown(run)[0]
        self.rows = self._rows(run)
        self.wrong: list[str] = []

    def _shown(self, run: Path):
        found = read_run_cases(run)
        with EpisodeReader(found) as reader:
            shown = {}
            for one in found.cases:
                last = reader.last(one)
                cost = None if last is None else reader.cost(last.attempts)
                value = None if last is None else bytes(last.value)
                shown[one.case.case_id] = (one.case, one.state, value, cost)
        return shown, [str(each) for each in found.damage]

    def _rows(self, run: Path):
        columns = [name for name in COLUMNS if name not in {"param.n", "param.prompt", "score.n"}]
        rows = read_rows(run, "results", columns, beginning="param.")
        scores = read_rows(run, "results", ["case_id"], beginning="score.")
        by_case = {row["case_id"]: row for row in scores}
        return {row["case_id"]: row | by_case.get(row["case_id"], {}) for row in rows}

    def compare(self, rows, said: str, *, asked_again: bool) -> list[str]:
        """The errors in rows that were made from a damaged run."""
        wrong = [f"{case_id} is foreign" for case_id in rows.keys() - self.rows.keys()]
        n_less = len(self.rows.keys() - rows.keys())
        for case_id in self.rows.keys() & rows.keys():
            true, row = self.rows[case_id], rows[case_id]
            for name in true:
                was, now = true[name], row.get(name)
                if was == now:
                    continue
                if asked_again and was in {None, "infra"}:
                    continue
                if now in {None, "infra"} or name == "cost":
                    n_less += 1
                    if name != "cost" or now is None or asked_again:
                        continue
                wrong.append(f"{case_id} {name}: {was} -> {now}")
        if n_less and not said:
            wrong.append(f"{n_less} less without a message")
        return wrong

    def command(self, *words: str) -> tuple[int, str]:
        self.capfd.readouterr()
        try:
            code = cli.main(words)
        except SystemExit as error:
            code = int(error.code or 0)
        except Exception:  # noqa: BLE001 - a user would see it
            return -1, traceback.format_exc()[-600:]
        out, err = self.capfd.readouterr()
        return code, out + err

    def read(self, run: Path) -> list[str]:
        """Run show, report and merge."""
        wrong = []
        code, said = self.command("show", str(run), "--no-pager")
        wrong += [f"show: {code} {said}"] if "Traceback" in said or code not in {0, 4} else []
        try:
            shown, gaps = self._shown(run)
        except UltraparError:
            wrong += [f"show: {code} {said}"] if code != 4 else []
        else:
            for case_id, (case, state, value, cost) in self.shown.items():
                now = shown.pop(case_id, None)
                if now == (case, state, value, cost):
                    continue
                if not gaps and "cannot read the run's manifest" not in said:
                    wrong.append(f"show: {case_id} without a message: {now}")
                elif now is not None and now[0] != case:
                    wrong.append(f"show: {case_id} is {now[0]}")
                elif now is not None and now[2] not in {None, value}:
                    wrong.append(f"show: {case_id} says {now[2]}")
            wrong += [f"show: {case_id} is foreign" for case_id in shown]
        page = run.with_name("page.html")
        code, said = self.command("report", str(run), "--out", str(page))
        wrong += [f"report: {code} {said}"] if "Traceback" in said or code not in {0, 1, 4} else []
        if code == 0:
            try:
                rows = self._rows(run)
            except UltraparError:
                rows = {}
            if rows:
                wrong += [f"report: {one}" for one in self.compare(rows, "", asked_again=False)]
        out = run.with_name("merged")
        code, said = self.command("merge", str(run), "--out", str(out))
        wrong += [f"merge: {code} {said}"] if "Traceback" in said or code not in {0, 1, 4} else []
        if (out / "results.parquet").exists():
            told = said if code else ""
            told += "".join(line for line in said.splitlines() if "damaged" in line)
            wrong += [
                f"merge: {one}" for one in self.compare(self._rows(out), told, asked_again=False)
            ]
        shutil.rmtree(out, ignore_errors=True)
        page.unlink(missing_ok=True)
        return wrong

    def session(self, run: Path, option: str, budget: int) -> list[str]:
        """Resume or regrade."""
        server = self.project.server
        before = len(server.prompts)
        spend = (f"--ultrapar-budget={budget / UNITS:.12f}",)
        result = self.project.run("-n0", "-q", *spend, option, str(run))
        said = result.stdout.str() + result.stderr.str()
        wrong = []
        if "Traceback" in said or "INTERNALERROR" in said or result.ret not in {0, 1, 4}:
            wrong.append(f"{option}: {result.ret} {said}")
        sent = server.prompts[before:]
        spent = sum(PRICE.cost(*map(int, prompt.split()[1:3])) for prompt in sent)
        is_resume = option == "--ultrapar-resume"
        if is_resume and self.spent + spent > budget:
            wrong.append(f"{option}: {self.spent} and {spent} are above {budget}: {said}")
        if not is_resume and sent:
            wrong.append(f"{option}: sent {sent}")
        if result.ret != 4:
            directory = run if is_resume else self.project.directory
            rows = self._rows(directory)
            wrong += [f"{option}: {one}" for one in self.compare(rows, said, asked_again=True)]
        return wrong


def made(project, seed: int, outcome: str = "solved") -> Path:
    """Make a run whose last case got no answer; its possible cost counts."""
    draw = random.Random(seed)
    cases = [(n, f"use {draw.randint(5, 15)} {draw.randint(1, 100)} {n}") for n in range(8)]
    project.pytester.path.joinpath("test_suite.py").write_text(
        SUITE.format(cases=cases, outcome=outcome)
    )
    project.server.weather = lambda asked: WORDS["drop"] if asked.words.endswith(" 7") else None
    project.run(
        "-n0", "--ultrapar-budget=1", "--ultrapar-max-attempts=1", f"--ultrapar-seed={seed}"
    )
    project.server.weather = lambda asked: None
    return project.directory.resolve()


def files(run: Path) -> list[str]:
    """The files of a run, by name; without empty files and those for human readers."""
    found = [path for path in run.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(str(path.relative_to(run)) for path in found if path.suffix != ".md")


def test_damaged_files_of_a_run_cause_no_wrong_result(project, capfd):
    project.write_pool(model="price_per_mtok_in = 3\nprice_per_mtok_out = 11")
    other = made(project, 2)
    project.server.prompts.clear()
    run = made(project, 1)
    judge = Judge(project, run, capfd)
    judge.spent = sum(
        PRICE.cost(*map(int, prompt.split()[1:3])) for prompt in project.server.prompts
    )
    # Enough for two more requests, if all earlier spending counts.
    budget = judge.spent + 2 * PRICE.cost(60, 100)
    # The same cases with other grades: its journal's grades would win, as they are later.
    (foreign,) = (made(project, 1, "unsolved") / "journal").iterdir()
    suite = project.pytester.path / "test_suite.py"
    suite.write_text(suite.read_text().replace("unsolved", "solved"))
    counts = {}
    for name in [*files(run), "journal/foreign"]:
        draw = random.Random(name)
        for number in range(N_DAMAGES):
            copy = project.pytester.path / "damaged"
            shutil.copytree(run, copy)
            path = copy / name
            if name == "journal/foreign":
                how = f"foreign {number}"
                shutil.copy(foreign, path.with_name(f"w-main-1-{number}.jsonl"))
            else:
                is_segment = name.startswith("journal/")
                how = damage(path, foreign if is_segment else other / name, draw)
            if how is not None:
                wrong = judge.read(copy)
                if name == "spending.log" or number % SESSIONS == 0:
                    wrong += judge.session(copy, "--ultrapar-resume", budget)
                elif number % SESSIONS == 1:
                    wrong += judge.session(copy, "--ultrapar-regrade", budget)
                judge.wrong += [f"{name} {how}: {one}" for one in wrong]
                counts[name] = counts.get(name, 0) + 1
            shutil.rmtree(copy)
    with capfd.disabled():
        print(counts)
    assert not judge.wrong, "\n".join(judge.wrong[:40]) + f"\n{len(judge.wrong)} in all"
