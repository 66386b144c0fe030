"""Runs of one shard each: their cases, the options they refuse, and the sharing of keys."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.testing import ServerLog, read_server_log
from tests.plugin.conftest import CANARY, SUITE, cases
from tests.running import Running, wait_until
from tests.simulated_pool import pool_text, serving

MANY = """
@pytest.fixture(params=["x", "y"])
def letter(request): return request.param

@pytest.fixture
def doubled(request): return request.param * 2

@pytest.mark.parametrize("prompt", ["a", "b", "c"])
@pytest.mark.parametrize("n, k", [(1, 2), pytest.param(3, 4, id="named")])
def test_stacked(answer, prompt, n, k): pass

class TestClass:
    @pytest.mark.parametrize("prompt", ["a", pytest.param("b", marks=pytest.mark.skip)])
    def test_in_class(self, answer, prompt): pass

@pytest.mark.parametrize("prompt", ["a", "b"])
@pytest.mark.parametrize("doubled", [1, 2], indirect=True)
def test_fixtures(answer, prompt, letter, doubled):
    assert doubled in (2, 4)

@pytest.mark.parametrize("n", range(4))
def test_plain_with_parameters(n): pass

@pytest.mark.parametrize("n", [])
def test_of_nothing(n): pass

def test_plain(): pass

def test_other(letter): pass

import unittest
class TestOld(unittest.TestCase):
    def test_one(self): pass
    def test_two(self): pass
    def test_three(self): pass
"""


def _collected(project, *args: str) -> list[str]:
    result = project.run_here("--collect-only", "-q", *args)
    assert result.ret in {0, 5}
    return [line for line in result.outlines if "::" in line]


@pytest.mark.parametrize("n", [1, 3, pytest.param(7, marks=pytest.mark.slow)])
def test_shards_are_disjoint_and_together_all_tests(project, n):
    project.write_pool(models=("m", "other"), key=", qps = 700")
    project.pytester.path.joinpath("pool.toml").write_text(
        project.pytester.path.joinpath("pool.toml").read_text().replace("workers = 4 ,", "")
    )
    project.suite(MANY)
    repeats = "--ultrapar-repeats=3"
    whole = _collected(project, repeats)
    shards = [_collected(project, repeats, f"--ultrapar-shard={k}/{n}") for k in range(1, n + 1)]
    assert Counter(name for own in shards for name in own) == Counter(whole)
    assert len(set(whole)) == len(whole) > 90
    for own in shards:
        assert own == [name for name in whole if name in set(own)]  # in the order of the whole
        assert not n > 1 or len(own) < len(whole)


def test_other_seed_makes_other_shards_of_the_same_tests(project):
    project.suite(
        '@pytest.mark.parametrize("prompt", range(50))\ndef test_it(answer, prompt): pass'
    )
    first, other = (
        _collected(project, "--ultrapar-shard=1/2", f"--ultrapar-seed={seed}") for seed in (0, 1)
    )
    assert set(first) != set(other)


@pytest.mark.slow
def test_shards_respect_plugins_that_change_the_parameters_of_tests(project):
    """Such as plugins that sort or drop combinations in `Metafunc._calls`."""
    project.pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_generate_tests(metafunc):
            yield
            if metafunc._calls:
                assert len(metafunc._calls) == len(list(metafunc._calls)) == 30
                metafunc._calls = [call for call in metafunc._calls if call.params["n"] != 3]
            metafunc.parametrize("late", [1, 2])
        """
    )
    project.suite(
        '@pytest.mark.parametrize("n", range(5))\n'
        '@pytest.mark.parametrize("prompt", list("abcdef"))'
        "\ndef test_it(answer, prompt, n, late): pass"
    )
    whole = _collected(project)
    shards = [_collected(project, f"--ultrapar-shard={k}/3") for k in (1, 2, 3)]
    assert sorted(name for own in shards for name in own) == sorted(whole)
    assert len(whole) == 48


@pytest.mark.slow
def test_parameter_given_twice_is_pytests_own_error(project):
    project.suite(
        '@pytest.mark.parametrize("prompt", list("ab"))\n@pytest.mark.parametrize("prompt", "c")'
        "\ndef test_it(answer, prompt): pass"
    )
    said = []
    for option in ("--ultrapar-shard=1/2", "-n0"):
        result = project.run_here("--collect-only", "-q", option)
        assert result.ret == 2
        said.append([line for line in result.outlines if "duplicate parametrization" in line])
    assert said[0] == said[1] != []


@pytest.mark.slow
def test_results_of_all_shards_have_each_case_once(project):
    project.suite(
        'P = [f"echo {n}" for n in range(12)]\n'
        '@pytest.mark.parametrize("prompt", P)\ndef test_it(answer, prompt): pass'
    )
    ids, generated = [], set()
    for k in (1, 2):
        result = project.run("-n0", f"--ultrapar-shard={k}/2", "--ultrapar-repeats=2")
        assert result.ret == 0
        manifest = msgspec.json.decode((project.directory / "manifest.json").read_bytes())
        assert manifest["shard"] == f"{k}/2"
        assert manifest["host"] == f"shard-{k}-of-2"
        assert manifest["generated"]["n_cases"] == 24
        generated.add(manifest["generated"]["digest"])
        own = {one["name"]: one for one in manifest["effective"]}
        assert own["p/key0 workers"] == {
            "name": "p/key0 workers",
            "value": 2,
            "origin": f"pool.toml, shard {k}/2 of 4",
        }
        rows = project.rows()
        ids += [row["case_id"] for row in rows]
        result.stdout.fnmatch_lines(
            [
                f"ultrapar: shard {k}/2: its own cases only, limits divided by 2",
                f"ultrapar: p/key0 workers = 2 (pool.toml, shard {k}/2 of 4)",
                f"ultrapar: shard {k}/2: {len(rows)} of 24 cases, limits divided by 2",
            ]
        )
    assert len(generated) == 1
    assert project.run("-n0", "--ultrapar-repeats=2").ret == 0
    assert sorted(ids) == sorted(row["case_id"] for row in project.rows())


@pytest.mark.slow
def test_shard_without_cases_ends_like_an_empty_selection(project):
    project.suite(cases(["a"]))
    codes = {project.run_here("-n0", f"--ultrapar-shard={k}/4").ret for k in range(1, 5)}
    assert codes == {0, 5}


ONE = cases(list("abcdefgh"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ultrapar-shard=auto"], "no variable sets a shard"),
        (
            ["--ultrapar-shard=1/5"],
            "workers = 4 of p/key0 divided by 5 shards leaves 0 for shard 5/5",
        ),
        (
            ["--ultrapar-shard=1/2", "--ultrapar-baseline=1"],
            "--ultrapar-baseline 1 cannot be used with shard 1/2 (command line --ultrapar-shard): "
            "it measures",
        ),
        (["--ultrapar-shard=1/2", "--ultrapar-mode=serial"], "mode serial (command line"),
        (
            ["--ultrapar-shard=1/2", "--ultrapar-gate=solved_rate>=0.5"],
            "ultrapar gate on the merged run",
        ),
        (["--ultrapar-shard=1/2", "--ultrapar-gate-baseline=x"], "ultrapar gate on the merged run"),
        (
            ["--ultrapar-shard=1/2", "--ultrapar-policy=exclusive"],
            "policy exclusive in mode ultra makes",
        ),
        (
            ["--ultrapar-shard=1/2", "--ultrapar-policy=exclusive", "--ultrapar-plan"],
            "policy exclusive",
        ),
    ],
)
def test_option_that_does_not_fit_a_shard_is_refused_before_any_request(
    project, server, options, said, monkeypatch
):
    for name in ("CI_NODE_INDEX", "CI_NODE_TOTAL", "CIRCLE_NODE_INDEX", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    project.write_pool(models=("m", "other"))
    project.suite(ONE)
    assert said in project.refusal(project.run_here("-n0", *options))
    assert not server.requests


def test_suite_that_takes_answers_from_another_suite_is_refused(project):
    for suite, mark in (
        ("one", ""),
        ("two", 'pytestmark = pytest.mark.ultrapar(taken_from="one")'),
    ):
        folder = project.pytester.mkdir(suite)
        project.suite(f"{mark}\n{ONE}", f"{folder.name}/test_{suite}.py")
    said = project.refusal(project.run_here("-n0", "--ultrapar-shard=1/2"))
    assert "suite two takes answers from one (taken_from)" in said


@pytest.mark.slow
def test_shard_is_resumed_as_itself_only(project, server):
    project.suite(cases([f"echo {n}" for n in range(8)]))
    assert project.run_here("-n0", "--ultrapar-shard=1/2").ret == 0
    server.reset()
    other = project.run_here("-n0", "--ultrapar-shard=2/2", "--ultrapar-resume=latest")
    said = "the run started with shard 1/2 and is resumed with shard 2/2 (--ultrapar-shard)"
    assert said in project.refusal(other)
    whole = project.run_here("-n0", "--ultrapar-resume=latest")
    assert "shard 1/2 and is resumed with all shards" in project.refusal(whole)
    assert project.run_here("-n0", "--ultrapar-shard=1/2", "--ultrapar-resume=latest").ret == 0
    assert not server.requests


@pytest.mark.slow
def test_shard_is_regraded_and_replayed_only_as_itself(project, server):
    project.suite(ONE)
    assert project.run_here("-n0", "--ultrapar-shard=1/2").ret == 0
    run, ids = project.directory.resolve(), {row["case_id"] for row in project.rows()}
    server.reset()
    for option in (f"--ultrapar-regrade={run}", f"--ultrapar-replay={run}"):
        result = project.run_here("-n0", option)
        assert result.ret == 0
        result.stdout.fnmatch_lines(["ultrapar: shard 1/2: its own cases only, *"])
        assert {row["case_id"] for row in project.rows()} == ids
        assert _manifest(project.directory)["shard"] == "1/2"
        other = project.run_here("-n0", option, "--ultrapar-shard=2/2")
        assert f"run {run.name} is shard 1/2, but command line" in project.refusal(other)
    assert not server.requests


def test_gate_of_a_shard_is_refused(project, capsys):
    project.suite(ONE)
    assert project.run_here("-n0", "--ultrapar-shard=1/2").ret == 0
    run = str(project.directory.resolve())
    assert main(["gate", run, "--rule", "solved_rate>=0"]) == 4
    said = (
        "is from shard 1/2 of a run, but a gate checks whole runs: merge the run's parts (ultrapar"
    )
    assert said in capsys.readouterr().err


# -- several at the same time, judged by the provider's log ----------------------------------------

POOL = """
schema = 1
[[provider]]
name = "lab"
api = "openai"
base_url = "{url}"
keys = [{{ name = "k", env = "LAB_KEY" }}]
per_key = {{ workers = 5, qps = 8, rpm = 400 }}
[[provider.model]]
name = "m"
latency_hint_s = 0.5
"""
SERVED = pool_text("workers = 5, qps = 8, rpm = 400", 0.5, sigma=0.4, name="lab")
N_CASES = 120


class Shards:
    """A server with the undivided limits, and runs of shards at the same time."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._log = folder / "server.log"
        server = serving(SERVED, self._log, tokens={"lab/key0": CANARY})
        self.server = stack.enter_context(server)

    def start(self, shard: str, *options: str) -> Running:
        suite = self.folder / "suite"
        suite.mkdir(exist_ok=True)
        (suite / "pool.toml").write_text(POOL.format(url=self.server.base_url("lab")))
        (suite / "test_suite.py").write_text(SUITE + cases(N_CASES))
        variables = {
            "LAB_KEY": CANARY,
            "ULTRAPAR_LOCK_DIR": str(self.folder / "locks"),
            "ULTRAPAR_STATE_DIR": str(self.folder / "state"),
        }
        out = self.out(shard)
        own = (f"--ultrapar-shard={shard}", f"--ultrapar-out={out}", *options)
        return self._stack.enter_context(Running(suite, *own, name=out.name, **variables))

    def out(self, shard: str) -> Path:
        return self.folder / f"out-{shard.replace('/', '-')}"

    def stop(self) -> ServerLog:
        self.server.stop()
        return read_server_log(self._log)


@pytest.fixture
def shards(tmp_path):
    with ExitStack() as stack:
        yield Shards(tmp_path, stack)


@pytest.mark.slow
def test_four_shards_at_the_same_time_stay_within_the_undivided_limits(shards):
    names = [f"{k}/4" for k in range(1, 5)]
    running = [shards.start(name, "-n2" if name == "1/4" else "-n0") for name in names]
    for run in running:
        code, out = run.wait()
        assert code == 0, out
        # Only until the other shard has its lock, not for its whole run.
        assert all(float(s) < 5 for s in re.findall(r"waited ([\d.]+) s for key", out)), out
    log = shards.stop()
    assert log.count(429) == 0
    assert len(log.requests) == N_CASES
    assert log.max_in_flight(key="key0") <= 5
    # One more arrives when a busy machine sends one late; providers allow for it.
    assert log.max_in_window(1.0, key="key0") <= 8 + 1
    # They ran at the same time, and no slower than the limits.
    assert log.max_in_flight(key="key0") >= 4
    rows = [row for name in names for row in _rows(shards.out(name))]
    assert len({row["case_id"] for row in rows}) == len(rows) == N_CASES
    seats = [_manifest(shards.out(name))["pool_limits"][0]["workers"] for name in names]
    assert seats == [2, 1, 1, 1]


@pytest.mark.slow
def test_same_shard_twice_and_a_shard_of_another_set_do_not_share_a_key(shards):
    running = shards.start("2/4", "-n0")
    wait_until(lambda: "results in" in running.output)
    for name, option in (("2/4", "--ultrapar-seed=0"), ("1/2", ""), ("1/4", "--ultrapar-seed=1")):
        out = f"--ultrapar-out={shards.folder / 'other'}-{name[0]}{name[2]}{option[-1:]}"
        more = [option] if option else []
        code, said = shards.start(name, "-n0", "--ultrapar-key-lock=fail", out, *more).wait()
        assert code == 4, said
        assert "key lab/k is in use by shard 2/4 with process id" in said


def _rows(run: Path) -> list[dict[str, object]]:
    return pq.read_table(run / "results.parquet").to_pylist()


def _manifest(run: Path) -> dict[str, object]:
    return msgspec.json.decode((run / "manifest.json").read_bytes())
