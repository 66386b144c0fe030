"""The spending of whole runs, judged by the server's requests."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import time
from pathlib import Path

import pytest

from pytest_ultrapar.broker.spending_file import read_spending
from pytest_ultrapar.pool.money import UNITS, ModelPrice
from pytest_ultrapar.testing import read_server_log
from tests.faults.byte_faults import leave, refuse
from tests.plugin.conftest import cases, refused
from tests.running import Running
from tests.scripted_server import WORDS
from tests.simulated_pool import pool_text

PRICE = ModelPrice("p", "m", 3.0, 11.0)
PRICES = "price_per_mtok_in = 3\nprice_per_mtok_out = 11\n"


def write_suite(project, prompts: list[str], bound: str) -> None:
    """Write cases with the bound `bound`, an argument of `llm.chat`."""
    text = f"""
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    return (await llm.chat([{{"role": "user", "content": prompt}}]{bound})).text
"""
    project.pytester.path.joinpath("test_suite.py").write_text(text + cases(prompts))


def write(project, n: int = 40, *, prices: str = PRICES) -> list[str]:
    project.write_pool(model=prices)
    draw = random.Random(1)
    prompts = [f"use {draw.randint(5, 15)} {draw.randint(1, 100)} {n}" for n in range(n)]
    write_suite(project, prompts, ", max_tokens=100")
    return prompts


def cost_of(prompts: list[str]) -> int:
    """Units, by the usage that the server reports for each prompt."""
    return sum(PRICE.cost(*map(int, prompt.split()[1:3])) for prompt in prompts)


@pytest.mark.cpu_s(2)
def test_run_spends_no_more_than_its_budget_and_resumes_with_a_larger_one(project):
    prompts = write(project)
    whole = cost_of(prompts) / UNITS
    budget = round(0.6 * whole, 6)
    first = project.run("-n0", "--ultrapar-budget", str(budget))
    assert first.ret == 1
    spent = cost_of(project.server.prompts)
    # The rest is less than the cost of two requests: too little for the next one.
    assert (budget - 2 * PRICE.cost(60, 100) / UNITS) * UNITS < spent <= budget * UNITS
    rows = project.rows()
    assert {row["kind"] for row in rows if row["outcome"] == "infra"} == {"budget"}
    assert sum(row["cost"] for row in rows if row["cost"] is not None) == pytest.approx(
        spent / UNITS
    )
    first.stdout.fnmatch_lines(
        [
            "budget of pool: * of * USD spent*",
            "*ended for lack of money: raise the budget and continue*",
        ]
    )
    more = round(1.5 * whole, 6)
    second = project.run("-n0", "--ultrapar-budget", str(more), "--ultrapar-resume", "latest")
    assert second.ret == 0
    assert sorted(project.server.prompts) == sorted(prompts)
    assert sum(read_spending(project.directory / "spending.log").values()) == cost_of(prompts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_budget_holds_for_any_prices_and_usage(project, seed):
    """Bill every request except for the 429s, even without an answer."""
    draw = random.Random(seed)
    price = ModelPrice("p", "m", draw.choice([0.0, 0.15, 3.0]), round(draw.uniform(0.1, 75), 4))
    outs = [draw.choice([1, 20, draw.randint(1, 900)]) for _ in range(20)]
    prompts = [
        f"use {draw.randint(1, 12)} {out} {out + draw.choice([0, 0, 40, 4000])} {n}"
        for n, out in enumerate(outs)
    ]
    figures = f"price_per_mtok_in = {price.per_mtok_in}\nprice_per_mtok_out = {price.per_mtok_out}"
    project.write_pool(model=figures)
    write_suite(project, prompts, ", max_tokens=int(prompt.split()[3])")
    lost, refused = draw.sample(prompts, 2), draw.sample(prompts, 4)
    billed = []

    def weather(asked):
        if asked.prompt in refused and asked.nth == 1:
            return refuse(429, b"Retry-After: 0.05")
        billed.append(price.cost(*map(int, asked.words.split()[:2])))
        return leave if asked.prompt in lost and asked.nth == 1 else None

    project.server.weather = weather
    whole = sum(price.cost(*map(int, prompt.split()[1:3])) for prompt in prompts)
    workers = "-n2" if seed == 0 else "-n0"
    budgets = [int(whole * draw.uniform(0.2, 1.1)), int(whole * 0.5), 100 * whole]
    for n, budget in enumerate(budgets):
        resumed = ["--ultrapar-resume", "latest"] if n else []
        limit = f"{budget / UNITS:.12f}"
        run = project.run(workers, "--ultrapar-budget", limit, *resumed)
        assert sum(billed) <= max(budgets[: n + 1])
    assert run.ret == 0
    assert set(project.outcomes().values()) == {"solved"}
    assert set(project.server.prompts) == set(prompts)


@pytest.mark.parametrize(
    ("prices", "said", "message"),
    [
        (
            "price_per_mtok_in = 3\n",
            ["--ultrapar-budget", "5"],
            '*the budget of pool requires a price for model "m" at provider "p": '
            "write price_per_mtok_out in its *",
        ),
        (PRICES, ["--ultrapar-budget=-1"], "*--ultrapar-budget must be >= 1e-06 (got -1.0)*"),
        (PRICES, ["--ultrapar-budget", "nan"], "*--ultrapar-budget must be >= 1e-06 (got nan)*"),
        (
            PRICES + '[pool]\nbudget = 1\nprices = "genai-prices"\ncurrency = "EUR"\n',
            [],
            '*pool.currency = "EUR" cannot be combined with prices = "genai-prices"*in USD*',
        ),
        (PRICES + "[pool]\nbudget = -1\n", [], "*pool.budget must be >= 1e-06 (got -1)*"),
        (PRICES + "[pool]\nbudget = nan\n", [], "*pool.budget must be >= 1e-06 (got nan)*"),
    ],
    ids=["no price", "negative", "nan", "currencies", "negative in pool", "nan in pool"],
)
def test_unusable_budget_is_refused_before_any_request(project, prices, said, message):
    write(project, 2, prices=prices)
    run = project.run_here("-n0", *said)
    project.refusal(run)
    run.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("bound", "is_sent"), [("", False), (", max_tokens=50", True)], ids=["unbounded", "bounded"]
)
def test_unbounded_request_is_only_reported_if_the_suite_sends_one(project, bound, is_sent):
    project.write_pool(model=PRICES)
    write_suite(project, ["use 5 20"], bound)
    run = project.run("-n0", "--ultrapar-budget", "0.01")
    said = " ".join(run.stdout.str().split())
    assert said.count("that a request without max_tokens may cost; limit its answer with") == (
        not is_sent
    )
    assert "WARNING: " not in said
    assert len(project.server.prompts) == is_sent
    assert {row["kind"] for row in project.rows()} == ({None} if is_sent else {"budget"})


@pytest.mark.slow
def test_killed_run_has_spent_the_cost_of_requests_in_flight(project):
    prompts = write(project)

    async def slowly(peer, asked) -> None:
        await asyncio.sleep(0.15)
        await WORDS["use"](peer, asked)

    project.server.faults["use"] = slowly
    budget = round(0.8 * cost_of(prompts) / UNITS, 6)
    with Running(project.pytester.path, "-n2", f"--ultrapar-budget={budget}"):
        assert project.server.wait_for(lambda seen: len(seen) >= 8)
    spending = project.directory / "spending.log"
    until_s = time.monotonic() + 10
    while (text := spending.read_text()) != spending.read_text() and time.monotonic() < until_s:
        time.sleep(0.05)
    asked = list(project.server.prompts)
    before = sum(read_spending(spending).values())
    assert cost_of(asked) <= before <= budget * UNITS
    assert text.count("reserve") > text.count("settle"), "nothing was in flight"

    project.server.faults["use"] = WORDS["use"]
    again = project.run("-n2", "--ultrapar-budget", str(budget), "--ultrapar-resume", "latest")
    assert again.ret == 1
    assert cost_of(project.server.prompts) <= budget * UNITS
    assert before <= sum(read_spending(spending).values()) <= budget * UNITS


@pytest.mark.slow
def test_changed_spending_counts_in_full_and_a_missing_file_stops_the_run(project):
    """As reserved: a request without an answer may have been billed."""
    prompts = write(project, 8)
    project.server.weather = lambda asked: WORDS["drop"] if asked.words.endswith(" 7") else None
    assert project.run("-n0", "--ultrapar-budget=1", "--ultrapar-max-attempts=1").ret == 1
    project.server.weather = lambda asked: None
    spending = project.directory / "spending.log"
    spent, whole = sum(read_spending(spending).values()), spending.read_text()
    assert cost_of(prompts) < spent
    # The rest would be enough if a digit of the largest reservation were believed.
    resume = ("-n0", "-q", "--ultrapar-resume=latest", f"--ultrapar-budget={spent / UNITS:.12f}")
    run_id = project.directory.resolve().name
    for content, said in (
        (None, "spending.log is missing, so the spending of this run is unknown"),
        (whole.replace(run_id, "other", 1), "spending.log is damaged, so the spending of this run"),
        ("", "spending.log is damaged, so the spending of this run is unknown; restore the file"),
    ):
        spending.unlink() if content is None else spending.write_text(content)
        assert said in refused(project.run(*resume))
    spending.write_text(re.sub(r"(reserve 8 )\d", r"\g<1>0", whole))
    again = project.run(*resume)
    assert again.ret == 1
    said = "*WARNING: *spending.log is damaged: the whole spending of the run counts in each of*"
    again.stdout.fnmatch_lines([said])
    assert {row["kind"] for row in project.rows() if row["outcome"] == "infra"} == {"budget"}
    assert len(project.server.prompts) == 8
    assert sum(read_spending(spending).values()) == spent


@pytest.mark.slow
def test_run_that_began_without_a_budget_counts_its_earlier_spending(project):
    prompts = write(project, 10)
    broken = {"on": True}
    project.server.weather = lambda asked: (
        WORDS["drop"] if broken["on"] and asked.nth and asked.words.endswith(" 9") else None
    )
    assert project.run("-n0", "--ultrapar-max-attempts", "1").ret == 1
    spent = cost_of(prompts[:9])
    broken["on"] = False
    budget = f"{spent / UNITS + 0.000001:.9f}"
    again = project.run("-n0", "--ultrapar-budget", budget, "--ultrapar-resume", "latest")
    assert again.ret == 1
    again.stdout.fnmatch_lines(
        ["*earlier sessions of this run had no budget*1 request of unknown cost*"]
    )
    assert {row["kind"] for row in project.rows() if row["outcome"] == "infra"} == {"budget"}
    assert len(project.server.prompts) == 10


@pytest.mark.slow
def test_spending_that_cannot_be_stored_ends_the_run(project, monkeypatch):
    prompts = write(project)
    real, done = os.write, []

    def full(fd: int, data: bytes) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "spending.log":
            done.append(fd)
            if len(done) > 30:
                real(fd, data[: len(done) % 10])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        stopped = project.run("-n0", "--ultrapar-budget", "1")
    output = stopped.stdout.str() + stopped.stderr.str() + project.report.str()
    assert stopped.ret == 1, output
    assert {row["kind"] for row in project.rows() if row["outcome"] == "infra"} == {"no_lane"}
    assert "spending.log: cannot record spending" in output
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
    assert cost_of(project.server.prompts) <= sum(
        read_spending(project.directory / "spending.log").values()
    )
    assert project.run("-n0", "--ultrapar-budget", "1", "--ultrapar-resume", "latest").ret == 0
    assert set(project.outcomes().values()) == {"solved"}
    assert set(project.server.prompts) == set(prompts)


JUDGED_POOL = """schema = 1
[role.judge]
model = "j"

[[provider]]
name = "p"
api = "openai"
base_url = "{url}"
keys = [{{ name = "key0", env = "TEST_KEY_0" }}]
per_key = {{ workers = 4 }}
[[provider.model]]
name = "m"
price_per_mtok_in = 1
price_per_mtok_out = 2
[[provider.model]]
name = "j"
price_per_mtok_in = 30
price_per_mtok_out = 70
"""
JUDGED = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def judged(llm, n) -> str:
    asked = [{{"role": "user", "content": f"use 8 20 {{n}}"}}]
    text = (await llm.chat(asked, max_tokens=20)).text
    asked = [{{"role": "user", "content": f"use 9 {used} {{n}}"}}]
    return text + (await llm.role("judge").chat(asked, max_tokens=60)).text

@pytest.mark.parametrize("n", range(20))
def test_it(judged, grade): grade("solved")
"""


def cost_by_log(project) -> int:
    """Units, by the server's log and the prices of case and judge."""
    prices = {"m": ModelPrice("p", "m", 1, 2), "j": ModelPrice("p", "j", 30, 70)}
    return sum(
        prices[one.model].cost(*map(int, one.prompt.split()[1:3]))
        for one in project.server.log.requests
    )


@pytest.mark.slow
def test_judge_has_its_own_price_and_a_replay_costs_only_what_it_sends(project):
    project.pytester.path.joinpath("pool.toml").write_text(
        JUDGED_POOL.format(url=project.server.base_url)
    )
    suite = project.pytester.path.joinpath("test_suite.py")
    suite.write_text(JUDGED.format(used=50))
    own, judge = ModelPrice("p", "m", 1, 2).cost(8, 20), ModelPrice("p", "j", 30, 70).cost(9, 50)
    whole = 20 * (own + judge)
    budget = whole * 3 // 5
    run = project.run("-n0", "--ultrapar-budget", f"{budget / UNITS:.9f}")
    assert run.ret == 1
    assert 10 * judge < cost_by_log(project) <= budget
    kinds = [row["kind"] for row in project.rows() if row["outcome"] == "infra"]
    # No answer was paid for a case that could not be finished.
    assert set(kinds) == {"budget"}
    run.stdout.fnmatch_lines([f"{len(kinds)} cases ended for lack of money: raise the budget *"])
    more = ("--ultrapar-budget", f"{2 * whole / UNITS:.9f}")
    assert project.run("-n0", *more, "--ultrapar-resume", "latest").ret == 0
    first = project.directory.resolve()

    suite.write_text(JUDGED.format(used=40))
    project.server.reset()
    judge = ModelPrice("p", "j", 30, 70).cost(9, 40)
    budget = 12 * judge
    again = (f"--ultrapar-replay={first}", "--ultrapar-replay-misses=ask")
    assert project.run("-n0", *again, "--ultrapar-budget", f"{budget / UNITS:.9f}").ret == 1
    sent = cost_by_log(project)
    assert {one.model for one in project.server.log.requests} == {"j"}
    assert 5 * judge < sent <= budget
    assert sum(read_spending(project.directory / "spending.log").values()) == sent
    assert project.run("-n0", *more, *again, "--ultrapar-resume", "latest").ret == 0
    assert cost_by_log(project) == 20 * judge


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "bound"),
    [(0.15, ", max_tokens=60"), (2.0, ", max_tokens=60"), (2.0, "")],
    ids=["too little", "enough", "unbounded"],
)
def test_servers_own_count_of_tokens_is_within_the_budget(project, share, bound):
    draw = random.Random(3)
    prompts = [f"{n} " + "word " * draw.randint(1, 40) for n in range(30)]
    project.pytester.path.joinpath("pool.toml").write_text(pool_text(model=PRICES))
    write_suite(project, prompts, bound)
    # The simulated provider answers as requested: some 4 characters a token, both ways.
    whole = sum(PRICE.cost(len(one) // 4 + 1, len(one) // 4 + 3) for one in prompts) / UNITS
    budget = share * whole
    run = project.run("-n0", "--ultrapar-budget", f"{budget:.9f}")
    assert run.ret == (0 if share > 1 else 1)
    log = read_server_log(project.directory / "simulator.jsonl").requests
    assert all(row.tokens_in is not None and row.tokens_out is not None for row in log)
    by_server = sum(PRICE.cost(row.tokens_in, row.tokens_out) for row in log)
    by_us = sum(read_spending(project.directory / "spending.log").values())
    assert 0 < by_server == by_us <= budget * UNITS


@pytest.mark.slow
def test_blocks_of_the_documentation_run_unchanged(project):
    text = Path(__file__).parents[2].joinpath("docs", "how-to", "budget.md").read_text()
    (pool,), (suite,) = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "python")
    )
    project.pytester.path.joinpath("pool.toml").write_text(pool)
    project.suite(suite)
    planned = project.run_here("--ultrapar-budget", "0.001", "--ultrapar-plan")
    planned.stdout.fnmatch_lines(["the pool's budget: 0.00100 USD; expected cost: *"])
    stopped = project.run("-n0", "--ultrapar-budget", "0.003")
    assert stopped.ret == 1
    stopped.stdout.fnmatch_lines(
        [
            "budget of pool: 0.00* USD of 0.00300 USD spent (requests without an answer count*)",
            "* cases ended for lack of money: raise the budget and continue with the same *",
        ]
    )
    said = ("--ultrapar-budget", "0.01", "--ultrapar-resume", "latest")
    assert project.run("-n0", *said).ret == 0
