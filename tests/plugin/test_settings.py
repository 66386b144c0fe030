"""Variables and options of the original scripts: each has an effect and is shown, or is refused."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import CANARY
from tests.plugin.test_bad_input import PLAIN_SUITE, refusal


def first_lines(result):
    return [line for line in result.outlines if line.startswith("ultrapar: ")]


def test_variable_that_is_not_allowed_is_refused_by_name(project, monkeypatch, workers):
    project.suite(PLAIN_SUITE)
    monkeypatch.setenv("MAX_WORKERS", "0")
    assert refusal(project, workers) == "environment: MAX_WORKERS must be >= 1 (got 0)"


@pytest.mark.parametrize(("workers", "most"), [("-n0", 1), ("-n2", 2)])
def test_debug_log_of_a_missing_process_is_refused(project, monkeypatch, workers, most):
    project.suite(PLAIN_SUITE)
    said = refusal(project, workers, "--ultrapar-debug-log=3")
    assert said == (
        f"command line --ultrapar-debug-log must be between 1 and {most}, the number of worker "
        "processes (got 3)"
    )
    monkeypatch.setenv("DEBUG_LOG", "true")
    monkeypatch.setenv("DEBUG_PROCESS_NUM", "3")
    said = refusal(project, workers)
    origin = "environment DEBUG_LOG and DEBUG_PROCESS_NUM"
    assert said.startswith(f"{origin} must be between 1 and {most}, the num")
    assert "must be" in refusal(project, workers, "--ultrapar-debug-log=gw0")


def test_every_variable_has_an_effect_and_is_shown(project, monkeypatch):
    project.suite(PLAIN_SUITE)
    # Two ports; only the first one has a server.
    project.pytester.path.joinpath("pool.toml").write_text(
        'schema = 1\n[[provider]]\nname = "p"\napi = "openai"\n'
        'base_url = "http://127.0.0.1:9/v1"\ntimeout_s = 5\n'
        'keys = [{ name = "key0", env = "TEST_KEY_0" }]\n'
        '[[provider.model]]\nname = "m"\nports_env = "VLLM_PORTS"\nper_instance = { workers = 4 }\n'
    )
    environment = {
        "RATE_MODE": "fixed",
        "STORAGE_FORMAT": "json",
        "NUM_INSTANCES": "2",
        "DEBUG_LOG": "true",
        "DEBUG_PROCESS_NUM": "1",
        "MAX_WORKERS": "3",
        "USE_CONCURRENT": "false",
        "USE_MULTI_VLLM": "false",
        "VLLM_PORTS": f"{project.server.port},9",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    result = project.run("-n0")

    assert result.ret == 0, result.stdout.str()
    said = "\n".join(first_lines(result))
    assert first_lines(result)[0].startswith("ultrapar: the environment changes this run: ")
    assert "(environment MAX_WORKERS)" in first_lines(result)[0]
    assert first_lines(result)[0].endswith("; ULTRAPAR_... variables take precedence over these")
    # The pool itself names this variable.
    assert "VLLM_PORTS" not in first_lines(result)[0]
    for part in (
        "rate_mode = fixed (environment RATE_MODE)",
        "storage = json (environment STORAGE_FORMAT)",
        "repeats = 2 (environment NUM_INSTANCES)",
        "debug_log = 1 (environment DEBUG_LOG and DEBUG_PROCESS_NUM)",
        "pool workers = 3 (environment MAX_WORKERS)",
        "mode = rotate (environment USE_CONCURRENT)",
        f"p/m ports = {project.server.port} (environment VLLM_PORTS, only the first port because "
        "of "
        "environment USE_MULTI_VLLM)",
        "ultrapar: when a case runs, p sends TEST_KEY_0 to 127.0.0.1",
        "3 seats, 2 repetitions",
    ):
        assert part in said
    assert CANARY not in result.stdout.str() + result.stderr.str()
    rows = (project.directory / "results.jsonl").read_text().splitlines()
    assert [json.loads(row)["repeat"] for row in rows].count(1) == 2
    assert {json.loads(row)["mode"] for row in rows} == {"rotate"}
    assert len(project.server.prompts) == 4
    assert [path.name for path in project.directory.glob("debug-*")] == ["debug-main.log"]


def test_command_line_overrides_the_environment_and_products_are_shown(project, monkeypatch):
    project.suite(PLAIN_SUITE)
    pool = project.pytester.path / "pool.toml"
    text = pool.read_text().replace("schema = 1", "schema = 1\n[pool]\nprompt_types = 3")
    pool.write_text(f"{text}per_instance = {{ workers = 1 }}\nmultiply_by_prompt_types = true\n")
    for name, value in {"NUM_INSTANCES": "3", "DEBUG_LOG": "true", "MAX_WORKERS": "9"}.items():
        monkeypatch.setenv(name, value)

    result = project.run(
        "-n0", "--ultrapar-repeats=1", "--ultrapar-debug-log=off", "--ultrapar-max-workers=2"
    )

    said = "\n".join(first_lines(result))
    assert "repeats = 1 (command line --ultrapar-repeats)" in said
    assert "debug_log = off (command line --ultrapar-debug-log)" in said
    assert "pool workers = 2 (command line --ultrapar-max-workers)" in said
    assert "p/m workers = 3 (pool.toml, 1 x 3 prompt types)" in said
    assert len(project.rows()) == 2
    assert list(project.directory.glob("debug-*")) == []


@pytest.mark.slow
def test_dist_no_with_workers_means_load_as_in_xdist(project):
    project.suite(PLAIN_SUITE)
    assert project.run("--dist=no", "-n2").ret == 0
    assert {row["worker"] for row in project.rows()} <= {"gw0", "gw1"}


def test_listing_shows_pool_and_settings_but_no_run(project):
    project.suite(PLAIN_SUITE)
    for option in ("--collect-only", "--setup-plan"):
        listed = project.run_here(option, "--ultrapar-repeats=2")
        assert listed.ret == 0
        said = [line for line in listed.outlines if line.startswith("ultrapar: ")]
        assert said == [
            "ultrapar: pool pool.toml, mode ultra, policy even, fixed limits, seed 0",
            "ultrapar: 1 model, 1 lane, 4 seats, 2 repetitions",
            "ultrapar: repeats = 2 (command line --ultrapar-repeats)",
            "ultrapar: when a case runs, p sends TEST_KEY_0 to 127.0.0.1",
        ]
    quiet = project.run_here("--collect-only", "-q")
    assert "ultrapar: " not in quiet.stdout.str()
    assert not (project.pytester.path / ".ultrapar").exists()


def test_lines_about_cases_come_after_pytests_own_line(project):
    project.suite(PLAIN_SUITE)
    lines = project.run_here("-n0").outlines
    (pytests,) = [at for at, line in enumerate(lines) if line.startswith("collected 2 items")]
    (ours,) = [at for at, line in enumerate(lines) if line.startswith("ultrapar: 2 cases; ")]
    assert pytests < ours
