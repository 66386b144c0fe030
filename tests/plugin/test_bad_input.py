"""Unusable input: one clear message, exit code 4; no request is sent, no process started."""

from __future__ import annotations

import fcntl

import pytest

from tests.plugin.conftest import CANARY, SUITE, cases

PLAIN_SUITE = cases(["say a", "say b"])


def refusal(project, *options, in_process=True):
    """The message with which pytest refuses to run; checks the rules of every refusal."""
    result = project.run_here(*options) if in_process else project.run(*options)
    messages = [line for line in project.refusal(result).splitlines() if line.strip()]
    said = result.stdout.str()
    assert messages, said
    assert messages[0].startswith("ERROR: "), messages
    assert "test session starts" not in said or "no tests ran" in said, said
    return "\n".join(messages).removeprefix("ERROR: ")


POOLS = {
    "name = ": "pool.toml: line 5 is not valid TOML: Invalid value",
    "worker = 3": "provider[0].per_key.worker is not a known field; did you mean workers?",
    f"api_key = '{CANARY}'": "provider[0].per_key.api_key is refused: the pool file must",
}


@pytest.mark.parametrize("field", POOLS)
def test_bad_pool_is_refused(project, workers, field):
    project.suite(PLAIN_SUITE)
    project.pytester.path.joinpath("pool.toml").write_text(
        'schema = 1\n[[provider]]\nname = "p"\n[provider.per_key]\n' + field
    )
    said = refusal(project, workers)
    assert POOLS[field] in said
    assert "\n" not in said
    assert not (project.pytester.path / ".ultrapar").exists()


@pytest.mark.cpu_s(2)
def test_missing_pool_of_the_ini_file_is_refused(project):
    project.suite(PLAIN_SUITE)
    project.pytester.makeini("[pytest]\nultrapar_pool = config/pool.toml\n")
    result = project.run("-n2", pool=False)
    project.refusal(result)
    assert [line for line in result.errlines if line] == [
        f"ERROR: {project.pytester.path}/config/pool.toml: there is no such file"
    ]


OPTIONS = {
    "attempts": (["--ultrapar-max-attempts=0"], "--ultrapar-max-attempts must be >= 1 (got 0)"),
    "resume and out": (
        ["--ultrapar-resume=latest", "--ultrapar-out=x"],
        "--ultrapar-resume already names the run's directory; leave out --ultrapar-out",
    ),
    "resume nothing": (
        ["--ultrapar-resume=latest"],
        "no run found at .ultrapar/latest; specify a run directory",
    ),
    "simulator": (
        ["--ultrapar-simulator=http://127.0.0.1:1"],
        "--ultrapar-simulator needs a selected model of a provider with api = ",
    ),
    "dist": (
        ["-n2", "--dist=loadscope"],
        "--dist loadscope cannot be used together with --ultrapar-pool, which has its own "
        "scheduler; use --dist load (the default with -n) or --dist no, which has the same effect",
    ),
    "tx": (["--dist=load", "--tx=ssh=host"], "--tx ssh=host cannot be used together with"),
    "id": (
        ["--dist=load", "--tx=popen//id=gpu-1"],
        "--tx popen//id=gpu-1 must name its worker with",
    ),
    "setup only": (["--setup-only"], "--setup-only cannot be used together with --ultrapar-pool"),
    "looponfail": (["-f"], "-f (--looponfail) cannot be used together with --ultrapar-pool"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bad_option_is_refused(project, name):
    options, message = OPTIONS[name]
    project.suite(PLAIN_SUITE)
    # With -n, xdist itself overrides --tx.
    said = refusal(project, *options, *([] if name in {"dist", "tx", "id"} else ["-n0"]))
    assert message in said
    assert "\n" not in said


def test_run_directory_that_is_in_use_or_not_empty_is_refused(project, workers):
    project.suite(PLAIN_SUITE)
    directory = project.pytester.path / "run"
    directory.mkdir()
    with (directory / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = refusal(project, workers, "--ultrapar-out=run")
        assert f"{directory} is in use by another process" in said
    directory.joinpath("run.lock").unlink()
    directory.joinpath("thesis.txt").write_text("mine")
    said = refusal(project, workers, "--ultrapar-out=run")
    assert f"{directory} is not empty and contains no run" in said
    assert [path.name for path in directory.iterdir()] == ["thesis.txt"]
    project.pytester.path.joinpath("file").write_text("x")
    assert "cannot use" in refusal(project, workers, "--ultrapar-out=file")


@pytest.mark.slow
def test_earlier_run_is_not_overwritten_and_not_resumed_by_another_suite(project):
    project.suite(PLAIN_SUITE)
    assert project.run("-n0", "--ultrapar-out=run").ret == 0
    project.server.reset()
    for workers in ("-n0", "-n2"):
        said = refusal(project, workers, "--ultrapar-out=run")
        assert "contains an earlier run; use another directory" in said
    said = refusal(project, "--ultrapar-resume=run", "--ultrapar-seed=7", in_process=False)
    assert "cannot be finished by this run: " in said
    assert "seed" in said
    project.suite(PLAIN_SUITE.replace("say b", "say c"))
    said = refusal(project, "--ultrapar-resume=latest", "-n2", in_process=False)
    assert "cannot be finished by this run: " in said


def test_suite_without_pool_is_refused_but_listed(project, workers):
    project.suite(PLAIN_SUITE)
    result = project.run(workers, pool=False)
    project.refusal(result)
    assert [line for line in result.errlines if line] == [
        "ERROR: test_suite.py::test_it[say a] sends requests to models and needs "
        "--ultrapar-model VENDOR/NAME or --ultrapar-pool FILE (ini ultrapar_pool)"
    ]
    if workers == "-n2":
        assert project.run(workers, "--collect-only", pool=False).ret == 0


@pytest.mark.slow
def test_unreachable_simulator_is_refused(project):
    project.pytester.path.joinpath("pool.toml").write_text(
        'schema = 1\n[[provider]]\nname = "sim"\napi = "simulated"\nkeys = [{ name = "k" }]\n'
        '[[provider.model]]\nname = "m"\n'
    )
    project.suite(cases(["say a"]))
    said = refusal(project, "--ultrapar-simulator=http://127.0.0.1:1", in_process=False)
    assert "--ultrapar-simulator: no server answers at http://127.0.0.1:1" in said


def test_parameter_that_no_file_can_store_is_named(project, workers):
    project.suite(
        r"""
@pytest.mark.parametrize("prompt", ["say a", "half \ud83d of it"])
def test_it(answer): pass
"""
    )
    said = refusal(project, workers, in_process=workers == "-n0")
    assert "test_suite.py::test_it[" in said
    assert "contains half a surrogate pair" in said


@pytest.mark.slow
def test_files_of_the_same_name_outside_the_project_are_both_named(project, tmp_path_factory):
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for folder in folders:
        folder.joinpath("test_same.py").write_text(SUITE + PLAIN_SUITE)
    said = refusal(project, *map(str, folders), "--import-mode=importlib")
    for folder in folders:
        assert str(folder / "test_same.py") in said
    assert "rename a file, or run the files separately" in said
    assert "different ids" not in said
