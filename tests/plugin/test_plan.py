"""`--ultrapar-plan`: describes a run, sends nothing, and leaves no files."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import said_by
from tests.plugin.test_bad_input import refusal
from tests.simulated_pool import pool_text

SUITE_OF_20 = """
@pytest.mark.ultrapar(expect={"turns": 2, "tokens_in": 1000, "tokens_out": 100})
@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(20)])
def test_it(answer): pass
"""
BUSY = ", qps = 5"
TWO_S = "latency_hint_s = 2\n"


@pytest.fixture
def planned(project):
    """Plan a run, and check that nothing else happened."""

    def run(*args, expected=0):
        before = sorted(project.pytester.path.glob(".ultrapar/*"))
        n_prompts = len(project.server.prompts)
        result = project.run_here("--ultrapar-plan", *args)
        said_by(result, expected)
        assert len(project.server.prompts) == n_prompts
        assert sorted(project.pytester.path.glob(".ultrapar/*")) == before
        return "\n".join(result.outlines)

    return run


def pool_with(project, *, model="", workers=4, more="", keys=1, provider=""):
    """Write the project's pool with more fields for its only model and for each key."""
    project.write_pool(keys=keys, key=more, provider=provider, seats=workers, model=model)


def rows(said):
    """The table of modes: for each mode its policy and the rest."""
    found = re.findall(r"^(serial|rotate|phase|ultra)(?: <-)? +(\S+) +(.*)$", said, re.MULTILINE)
    return {mode: (policy, rest) for mode, policy, rest in found}


def test_plan_in_adaptive_mode_says_that_it_uses_the_maximum_of_each_limit(project, planned):
    project.suite(SUITE_OF_20)
    pool_with(project, model=TWO_S)
    said = planned("-n0", "--ultrapar-rate-mode=adaptive")
    assert (
        "  a run would estimate the limits of p; these figures use the maximum of each limit, so"
        in said
    )


@pytest.mark.parametrize("workers", ["-n0", "-n2", "-n15"])
def test_plan_sends_nothing_and_starts_no_worker(project, planned, workers):
    project.suite(SUITE_OF_20)
    pool_with(project, model=TWO_S)
    said = planned(workers)
    assert "no request was sent" in said
    assert "would estimate the limits" not in said
    assert ("; for 15 workers; " in said) == (workers == "-n15")
    assert (
        "the pool's latencies and the suite's turns, declared and not measured (for 20 cases)"
        in said
    )
    assert "bringing up nodes" not in said
    assert "created: " not in said
    assert " gw0" not in said
    assert re.search(r"^m +20 +40 +20,000 +2,000 +80.0 s$", said, re.MULTILINE)
    # 20 episodes of 4 s on 4 seats, and one after another.
    assert rows(said)["ultra"][1].startswith("20.0 s")
    assert rows(said)["serial"][1].startswith("80.0 s")
    assert set(rows(said)) == {"serial", "rotate", "ultra"}
    assert "mode phase" not in said
    assert "ultra <-" in said
    assert ("15 workers for at most 4 requests in flight; -n 1 is as fast" in said) == (
        workers == "-n15"
    )
    assert not (project.pytester.path / ".ultrapar").exists()


def test_simulated_pool_starts_no_server(project, planned):
    project.suite(SUITE_OF_20)
    (project.pytester.path / "pool.toml").write_text(pool_text("workers = 2", 0.1))
    said = planned("-n0")
    assert "SIMULATED: a plan for the simulated provider" in said
    # 40 requests of 0.1 s on 2 seats.
    assert rows(said)["ultra"][1].startswith(("2.00 s", "2.01 s", "2.02 s"))


def test_selected_mode_is_marked_and_uses_its_policy(project, planned):
    project.suite(SUITE_OF_20)
    assert "serial <-" in planned("-n0", "--ultrapar-mode=serial")
    said = planned("-n0", "--ultrapar-policy=round-robin")
    assert rows(said)["ultra"][0] == "round-robin"
    assert rows(said)["serial"][0] == "none"


@pytest.mark.slow
def test_plan_uses_the_matching_cases_of_an_earlier_run(project, planned):
    project.suite(SUITE_OF_20.replace("range(20)", "range(3)"))
    assert project.run("-n0").ret == 0
    project.suite(SUITE_OF_20)
    said = planned("-n0")
    assert "the same case in the earlier run (for 3 cases)" in said
    assert "a case of the same test with the same model in the earlier run (for 17 cases)" in said
    assert re.search(r"the earlier run is \S+/\.ultrapar/\S+, mode ultra", said)
    # The earlier run shows one request for each case; the mark assumes two.
    assert re.search(r"^m +20 +20 ", said, re.MULTILINE)
    assert re.search(r"^m +20 +40 ", planned("-n0", "--ultrapar-plan-from=none"), re.MULTILINE)

    project.server.reset()
    pool_text = (project.pytester.path / "pool.toml").read_text()
    other = pool_text.replace('instances = ["m"]', 'instances = ["m-2"]')
    (project.pytester.path / "pool.toml").write_text(other)
    reason = "m's answers came from m at p (openai) and now come from m-2 at p (openai)"
    said = planned("-n0")
    assert reason in said
    assert (
        "the pool's latencies and the suite's turns, declared and not measured (for 20 cases)"
        in said
    )
    refused = refusal(project, "--ultrapar-plan", "-n0", "--ultrapar-plan-from=latest")
    assert refused.startswith("--ultrapar-plan-from: ")
    assert reason in refused

    (project.pytester.path / "pool.toml").write_text(pool_text)
    (project.directory / "results.parquet").unlink()
    assert " is not used: " in planned("-n0")
    refused = refusal(project, "--ultrapar-plan", "-n0", "--ultrapar-plan-from=latest")
    assert "has no results: the run has not ended" in refused


def test_inconsistent_pool_is_refused_with_the_sum(project, workers):
    project.suite(SUITE_OF_20)
    pool_with(project, workers=600, more=BUSY, model=TWO_S)
    assert refusal(project, "--ultrapar-plan", workers) == (
        "--ultrapar-plan: p/key0: 5 requests per second at 2 s each can use only 10 of 600 workers "
        "(5 x 2 = 10 on average); use 10 to 100 workers, or raise the rate"
    )


def test_serial_sample_and_gates_of_the_run_are_planned_and_checked(project, planned):
    project.suite(SUITE_OF_20)
    pool_with(project, model=TWO_S)
    said = planned("-n0", "--ultrapar-baseline=5")
    assert "no request was sent; a serial sample of 5 cases runs first; " in said
    # Five episodes of 4 s, then fifteen on 4 seats.
    assert rows(said)["ultra"][1].startswith("36.0 s")
    assert rows(said)["serial"][1].startswith("80.0 s")
    assert "--ultrapar-baseline 20" in refusal(
        project, "--ultrapar-plan", "-n0", "--ultrapar-baseline=20"
    )
    assert "nonsense" in refusal(project, "--ultrapar-plan", "-n0", "--ultrapar-gate=nonsense>1")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--ultrapar-baseline=999", "--ultrapar-baseline 999: this run has only 20 cases"),
        ("--ultrapar-gate=solved_rate[model=other]>=0.5", "other"),
    ],
)
def test_plan_gives_the_same_errors_as_its_run(project, option, said):
    project.suite(SUITE_OF_20)
    pool_with(project, model=TWO_S)
    planned = refusal(project, "--ultrapar-plan", "-n0", option)
    assert said in planned
    assert planned == refusal(project, "-n0", option)
    assert project.server.prompts == []


def warned(said, prefix):
    return [line.removeprefix(prefix) for line in said.splitlines() if line.startswith(prefix)]


@pytest.mark.slow
def test_header_of_a_run_warns_of_the_same_waste_as_its_plan(project, planned):
    project.suite(SUITE_OF_20)
    pool_with(project, workers=50, model=TWO_S, more=", qps = 8")
    of_cases, of_rates = warned(planned("-n0"), "WARNING: ")
    assert of_cases == (
        "more seats than cases (a case uses one seat at a time): m has 50 seats for 20 cases; "
        "reduce workers, or add cases (--ultrapar-repeats)"
    )
    assert of_rates.startswith("p/key0: at 8 requests/s and 2 s each, only about 16 of 50 workers ")
    # A short run has few cases; there is no need to change a pool for it.
    for quiet, shown in (("-v", [of_rates]), ("-q", [of_rates]), ("-qq", [])):
        ran = project.run_here("-n0", quiet)
        assert ran.ret == 0
        assert warned(ran.stdout.str(), "ultrapar: WARNING: ") == shown


def test_missing_key_is_only_a_warning(project, planned, monkeypatch):
    project.suite(SUITE_OF_20)
    monkeypatch.delenv("TEST_KEY_0")
    said = planned("-n0")
    assert (
        "WARNING: a run would fail to start: pool.toml: provider[0].keys[0].env names the" in said
    )


def test_skipped_cases_are_excluded_and_counted(project, planned):
    project.suite(SUITE_OF_20 + "\n@pytest.mark.skip\ndef test_other(answer): pass\n")
    path = project.pytester.path / "test_suite.py"
    path.write_text(path.read_text().replace("test_other(answer)", "test_other(plain)") + PLAIN)
    said = planned("-n0")
    assert re.search(r"^m +20 ", said, re.MULTILINE)
    assert "1 case skipped by a mark" in said


PLAIN = """
@prefetch
async def plain(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "say x"}])).text
"""


def test_plan_without_cases_reports_it(project, planned):
    project.suite("def test_plain(): assert False\n")
    assert "nothing to plan: no selected test sends a request" in planned("-n0")
    project.suite(SUITE_OF_20)
    planned("-n0", "-k", "nothing", expected=5)


def test_pytest_reports_errors_of_collection(project, planned):
    project.suite(SUITE_OF_20 + "\nraise LookupError\n")
    said = planned("-n0", expected=2)
    assert "LookupError" in said
    assert "ultrapar plan" not in said


def test_mark_with_an_invalid_expectation_is_refused(project):
    project.suite(
        '@pytest.mark.ultrapar(expect={"turns": 0})\n'
        '@pytest.mark.parametrize("prompt", ["say a"])\ndef test_it(answer): pass\n'
    )
    said = refusal(project, "--ultrapar-plan", "-n0")
    assert said == (
        "test_suite.py::test_it: mark ultrapar(expect=...): turns must be a number >= 1 (got 0)"
    )


REFUSED = {
    "--ultrapar-resume=latest": "--ultrapar-plan plans a whole run; leave out --ultrapar-resume",
    "--ultrapar-plan-from=nowhere": "no run found at nowhere or .ultrapar/nowhere; specify a run",
}


@pytest.mark.parametrize("option", REFUSED)
def test_option_that_does_not_fit_a_plan_is_refused(project, option):
    project.suite(SUITE_OF_20)
    assert REFUSED[option] in refusal(project, "--ultrapar-plan", "-n0", option)


def test_plan_without_a_pool_is_refused(project, workers):
    project.suite(SUITE_OF_20)
    said = project.refusal(project.run_here("--ultrapar-plan", workers, pool=False))
    assert "--ultrapar-plan needs --ultrapar-model VENDOR/NAME or --ultrapar-pool FILE" in said


def test_plan_contains_no_secret(project, planned):
    project.suite(
        "import os\n"
        "@pytest.mark.parametrize('prompt', ['say ' + os.environ['TEST_KEY_0']])\n"
        "def test_it(answer): pass\n"
    )
    (project.pytester.path / "conftest.py").write_text(
        "import os\n"
        "from pytest_ultrapar import ConfigError\n"
        "def pytest_ultrapar_policies(mode):\n"
        "    return ['own'] if mode == 'phase' else None\n"
        "def pytest_ultrapar_assign(policy):\n"
        "    if policy == 'own':\n"
        "        raise ConfigError('the key is ' + os.environ['TEST_KEY_0'])\n"
    )
    assert "mode phase: the key is ***" in planned("-n0")


def test_phase_of_a_conftest_is_forecast_with_its_processes(project, planned):
    project.suite(SUITE_OF_20)
    pool_with(project, model=TWO_S, workers=11)
    (project.pytester.path / "conftest.py").write_text(
        "from pytest_ultrapar import Assignment, Group\n"
        "def pytest_ultrapar_policies(mode):\n"
        "    return ['halves'] if mode == 'phase' else None\n"
        "def pytest_ultrapar_process(case):\n"
        "    return 'even' if case.index % 2 == 0 else 'odd'\n"
        "def pytest_ultrapar_assign(policy, cases):\n"
        "    if policy == 'halves':\n"
        "        ids = [one.case_id for one in cases]\n"
        "        first = Group('first', tuple(ids[:10]), at_once=1)\n"
        "        return Assignment(groups=(first, Group('last', tuple(ids[10:]))))\n"
    )
    said = planned("-n0")
    # Ten episodes of 4 s one after another, the others at the same time.
    assert rows(said)["phase"][0] == "halves"
    assert rows(said)["phase"][1].startswith("40.0 s")
    assert (
        "mode phase, policy halves: load: for each key, the processes of the original scripts"
        in said
    )
    assert "load: p/key0: 4 at once, 8 QPS: even, odd" in said
    assert "binding key: p/key0 (workers) (time alone: 7.27 s)" in said


def test_collect_only_lists_cases_and_plans(project, planned):
    project.suite(SUITE_OF_20)
    said = planned("-n2", "--collect-only", "-q")
    assert "test_suite.py::test_it[m-say 0-r0]" in said
    assert "lower bound on the time" in said
