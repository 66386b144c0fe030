"""The five phases as a user selects them, in a checkout as users have it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.light import LIGHT
from tests.running import environment, run_pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PHASES = ("phase51", "phase52", "phase53", "phase54", "phase55")
CLOSED = 6
"""Closed models of the pools of script seeds 001 and 003; these variables hold their keys."""
KEYS = ("AZURE_OPENAI_API_KEY", "IDEALLAB_KEY_0", "IDEALLAB_KEY_1", "IDEALLAB_KEY_2")
FEW = ("--task-type", "simple_task", "--ultrapar-repeats", "1")


def counted(*args: str, pool: str = "pool.toml", suites: Sequence[str] = PHASES) -> dict[str, int]:
    """The number of cases of each phase that would run."""
    paths = [f"bench_suites/{name}" for name in suites]
    done = run_pytest(ROOT, *paths, "--collect-only", "-qq", "--ultrapar-pool", pool, *args)
    return found_in(done.stdout)


def found_in(output: str) -> dict[str, int]:
    found = re.findall(r"^bench_suites/(\w+)/\S+: (\d+)$", output, flags=re.MULTILINE)
    return {name: int(number) for name, number in found}


def test_plan_has_the_documented_number_of_cases():
    assert counted("--ultrapar-repeats=20") == {
        "phase51": 800,
        "phase52": 1_000,
        "phase53": 5_600,
        "phase54": 3_200,
        "phase55": 1_600,
    }


@pytest.mark.parametrize("pool", ["pools/seed001.toml", "pools/seed003.toml"])
def test_closed_models_add_cases_to_every_phase_except_the_phase_of_sizes(monkeypatch, pool):
    for name in KEYS:
        monkeypatch.setenv(name, f"a-secret-of-a-test-{name}")
    more = (8 + CLOSED) / 8
    assert counted("--ultrapar-repeats=1", pool=pool) == {
        "phase51": 40 * more,
        "phase52": 50,
        "phase53": 280 * more,
        "phase54": 160 * more,
        "phase55": 80 * more,
    }


SELECTIONS = [
    # A phase on its own sends the cells of 5.1 itself.
    ((), ["phase52"], {"phase52": 75}),
    ((), ["phase54"], {"phase54": 200}),
    ((), ["phase51", "phase54"], {"phase51": 40, "phase54": 160}),
    # Cells that belong to 5.1 are not missing: a selection finds them in either phase.
    (("-k", "easy and not very_easy and 3b"), PHASES[:2], {"phase51": 5}),
    (("-k", "easy and not very_easy and 3b"), ["phase52"], {"phase52": 5}),
    (("-k", "phase54"), PHASES, {"phase54": 200}),
    (("-k", "0.8 and simple_task"), ["phase54"], {"phase54": 8}),
    (("--ultrapar-model=qwen*",), ["phase51", "phase55"], {"phase51": 25, "phase55": 50}),
    (("--prompt-type=cot",), PHASES[1:], {"phase52": 75, "phase54": 200, "phase55": 40}),
    (("--prompt-type=flawed_missing_step",), PHASES, {"phase53": 40}),
    (("--flaw-set=all",), ["phase53"], {"phase53": 440}),
    (("--flaw-severity=light,medium", "--flaw-severity=severe"), ["phase53"], {"phase53": 840}),
    (("--flaw-severity=light", "--flaw-severity=medium", "-k=light"), PHASES, {"phase53": 280}),
    (("--difficulty=hard,very_hard",), ["phase51"], {"phase51": 80}),
    (("--tool-success-rate=0.80,.8", "--tool-success-rate=1"), ["phase54"], {"phase54": 80}),
    (("--task-type=simple_task",), ["phase51", "phase53"], {"phase51": 8, "phase53": 56}),
    # Mode `phase` sends in 5.2 the same requests as the original, with and without 5.1.
    (("--ultrapar-mode=phase",), ["phase52"], {"phase52": 50}),
    (("--ultrapar-mode=phase",), PHASES[:2], {"phase51": 40, "phase52": 50}),
    (("--ultrapar-mode=phase", "--difficulty=easy"), ["phase52"], {"phase52": 25}),
    # Three repetitions of the first two task types.
    (("--ultrapar-repeats=3x2",), ["phase51"], {"phase51": 8 * 2 * 3}),
]
EACH = """
import json, sys, pytest
for args in json.load(sys.stdin):
    code = int(pytest.main(args))
    for stream in (sys.stdout, sys.stderr):
        print("==", code, file=stream, flush=True)
"""


def run_each(asked: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each, all in one process, because a start is expensive."""
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        cwd=ROOT,
        env=environment(),
        input=json.dumps([[*LIGHT, *args] for args in asked]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *outputs, rest = re.split(r"^== (\d+)\n", done.stdout, flags=re.MULTILINE)
    *errors, last = re.split(r"^== (\d+)\n", done.stderr, flags=re.MULTILINE)
    assert rest + last == ""
    found = zip(outputs[1::2], outputs[::2], errors[::2], strict=True)
    return [(int(code), output, error) for code, output, error in found]


def test_selections_find_their_cases():
    asked = []
    for args, suites, _ in SELECTIONS:
        paths = [f"bench_suites/{name}" for name in suites]
        repeats = [] if any("repeats" in arg for arg in args) else ["--ultrapar-repeats=1"]
        asked.append(
            [*paths, "--collect-only", "-qq", "--ultrapar-pool=pool.toml", *repeats, *args]
        )
    found = [(code, found_in(answer)) for code, answer, _ in run_each(asked)]
    assert found == [(0, cases) for _, _, cases in SELECTIONS]


WISHES = [
    (["--tool-success-rate=nan"], "--tool-success-rate must be a number from 0 to 1 (got 'n"),
    (["--task-type=,"], "--task-type names nothing (got ','); omit it to use the default"),
    (["--ultrapar-repeats=3x0"], "command line: --ultrapar-repeats must be >= 1 (got 0)"),
    (["--task-type=chat"], "--task-type 'chat' is unknown; allowed are simple_task, basic"),
    (
        ["--flaw-set=flawed_mising_step"],
        "--flaw-set 'flawed_mising_step' is unknown; did you mean missing_step? allowed are",
    ),
    (
        ["--flaw-set=document", "--prompt-type=flawed_tool_misuse"],
        "--prompt-type flawed_tool_misuse is not among the flaws of --flaw-set (sequence_dis",
    ),
    (
        ["--model", "m", "--prompt-types", "optimal", "--num-instances=60"],
        "--model is a flag of the original scripts; use --ultrapar-model M (docs/benchmark",
    ),
    (["--ultrapar-phase-scale=0"], "--ultrapar-phase-scale needs --ultrapar-mode phase"),
    (
        ["--ultrapar-mode=serial", "--ultrapar-policy=exclusive"],
        "--ultrapar-policy 'exclusive' has no effect in mode serial, which runs one case at a",
    ),
]


def test_invalid_selections_are_refused_with_the_allowed_values(tmp_path):
    def run(name: str, *args: str) -> list[str]:
        out = f"--ultrapar-out={tmp_path / name}"
        return ["bench_suites", "--ultrapar-pool=pool.toml", out, *args]

    answers = run_each([run(f"{at}", "-n0", *args) for at, (args, _) in enumerate(WISHES)])
    # With xdist the controller refuses, by the same code.
    by_controller = next(wish for wish in WISHES if "chat" in wish[0][0])
    done = run_pytest(ROOT, *run("xdist", "-n2", *by_controller[0]), code=4)
    answers.append((done.returncode, done.stdout, done.stderr))
    wrong = [
        (args, code, output + error)
        for (args, message), (code, output, error) in zip(
            [*WISHES, by_controller], answers, strict=True
        )
        if code != 4 or f"ERROR: {message}" not in error or "Traceback" in output + error
    ]
    assert wrong == []
    assert list(tmp_path.iterdir()) == []


def test_edited_library_is_named_recorded_and_not_mixed_with_another(tmp_path):
    shutil.copytree(ROOT / "bench_suites", tmp_path / "bench_suites")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pool.toml", tmp_path)
    args = ("bench_suites/phase51", *FEW, "--ultrapar-model=qwen2.5-3b*", "-qq")

    def manifest(name: str) -> dict:
        return msgspec.json.decode((tmp_path / name / "manifest.json").read_bytes())

    run_pytest(tmp_path, *args, "--ultrapar-out=sound")
    library = tmp_path / "bench_suites" / "workflow" / "data" / "descriptions_easy.json"
    edited_text = library.read_text() + "\n"
    library.write_text(edited_text)

    edited = run_pytest(tmp_path, *args, "--ultrapar-out=edited")
    assert f"workflow: the task library was edited: {library.name}" in edited.stdout
    assert manifest("edited")["data"]["edited files of the task library"] == library.name
    assert manifest("edited")["data"]["prompts"] == manifest("sound")["data"]["prompts"]

    library.write_text("{")
    unusable = run_pytest(tmp_path, *args, "--ultrapar-out=unusable", code=4)
    assert f"the task library was edited ({library.name}) and cannot be used" in unusable.stderr
    assert "Traceback" not in unusable.stderr
    library.write_text(edited_text)

    for option in ("--ultrapar-reuse=sound", "--ultrapar-resume=sound"):
        refused = run_pytest(tmp_path, *args, option, code=4)
        was, now = (manifest(name)["data"]["task library"] for name in ("sound", "edited"))
        assert f"task library was {was}" in refused.stderr
        assert now in refused.stderr


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (
            ["phase53", "--prompt-type=optimal"],
            "phase53 runs only flawed_* prompts; choose one with",
        ),
        (["phase52", "--ultrapar-model=DeepSeek*"], "phase52 runs only models that match qwen*; "),
    ],
)
def test_run_without_cases_reports_the_reason(tmp_path, args, reason):
    suite, option = args
    done = run_pytest(
        *(ROOT, f"bench_suites/{suite}", option, "-n0", "--ultrapar-repeats=1"),
        f"--ultrapar-out={tmp_path / 'run'}",
        code=5,
    )
    assert f"nothing selected: {reason}" in done.stdout


def test_load_of_the_keys_is_in_the_header(tmp_path):
    args = ("bench_suites/phase52", *FEW, "--ultrapar-model=qwen2.5-*b-instruct", "-n0")
    args += ("--difficulty=very_easy,medium",)
    for policy, most in {"model-key": (4, 4, 2), "serial": (1, 1, 1)}.items():
        out = f"--ultrapar-out={tmp_path / policy}"
        done = run_pytest(ROOT, *args, out, f"--ultrapar-policy={policy}")
        for number, n in enumerate(most):
            assert f"load: ideallab/key{number}: {n} at once, {2 * n} of 18 QPS" in done.stdout


def test_mode_phase_has_the_originals_processes_of_phase_52_without_further_options():
    """Script seed 002: ten processes, 4, 4 and 2 on the keys, 8, 8 and 4 requests per second."""
    asked = {
        ("bench_suites/phase52",): (4, 4, 2),
        ("bench_suites/phase51", "bench_suites/phase52"): (4, 4, 2),
        # The three groups of 5.3 run on each key.
        ("bench_suites",): (4, 4, 3),
        ("bench_suites/phase52", "--difficulty=easy"): (2, 2, 1),
    }
    how = (*FEW, "--ultrapar-mode=phase", "--ultrapar-plan", "--ultrapar-pool=pools/seed003.toml")
    answers = run_each([[*one, *how] for one in asked])
    for most, (_, said, _) in zip(asked.values(), answers, strict=True):
        for number, n in enumerate(most):
            assert f"load: ideallab/key{number}: {n} at once, {2 * n} of 10 QPS" in said
    assert len(set(re.findall("phase52 qwen[^ ]+ [a-z_]+", answers[0][1]))) == 10


def test_workers_are_multiplied_by_the_prompt_types_that_the_run_selects(monkeypatch):
    for name in KEYS:
        monkeypatch.setenv(name, f"a-secret-of-a-test-{name}")
    asked = {
        ("bench_suites/phase51",): 1,
        ("bench_suites/phase55",): 3,
        ("bench_suites/phase55", "--prompt-type=baseline,cot"): 2,
        ("bench_suites/phase53",): 7,
        ("bench_suites/phase53", "--prompt-type=flawed_missing_step,flawed_tool_misuse"): 2,
        ("bench_suites",): 3 + 7,
    }
    how = (*FEW, "--collect-only", "--ultrapar-pool=pools/seed001.toml")
    for n, (_, said, _) in zip(
        asked.values(), run_each([[*one, *how] for one in asked]), strict=True
    ):
        assert f"prompt_types = {n} (prompt types that the run selects)" in said
        assert ("azure/gpt-4o-mini workers" in said) == (n > 1)
        if n > 1:
            assert f"workers = {200 * n} (seed001.toml, 200 x {n} prompt types)" in said
