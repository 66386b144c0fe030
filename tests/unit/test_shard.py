"""The number of a shard, and its part of every limit."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.money import budget_units
from pytest_ultrapar.pool.setting_values import Overrides, parse_shard
from pytest_ultrapar.pool.settings import Shard
from pytest_ultrapar.pool.shard import divided, settled_shard, share_of, whole_units

POOL = """
schema = 1
[pool]
budget = 0.1
[[provider]]
name = "lab"
api = "openai"
base_url = "https://api.example.com/v1"
keys = [{ name = "key0", env = "KEY_0" }]
per_key = { LIMITS }
[[provider.model]]
name = "m"
price_per_mtok_in = 1
price_per_mtok_out = 1
"""
ORIGIN = "command line --ultrapar-shard"


def shards(n: int) -> list[Shard]:
    return [Shard(k, n) for k in range(1, n + 1)]


@pytest.fixture
def pool(load):
    return lambda limits, **overrides: load(POOL.replace("LIMITS", limits), **overrides)


# -- number ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("0/4", "5/4", "1/0", "0/0", "a/b", "1", "", "1/4/2", "-1/4", "1/-4", "1/100001", "1 / 4"),
        *(f"{'9' * 40}/4", f"1/{'9' * 40}", "²/4", "Auto"),
    ],
)
def test_invalid_shard_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError, match=r"^command line: --ultrapar-shard must ") as error:
        parse_shard(Location("command line", "--ultrapar-shard"), text)
    assert "\n" not in str(error.value)


GITLAB = {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"}
CIRCLE = {"CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "3"}
SLURM = {
    f"SLURM_ARRAY_TASK_{word}": value
    for word, value in {"ID": "7", "MIN": "5", "MAX": "9", "COUNT": "5"}.items()
}


@pytest.mark.parametrize(
    ("environ", "shard", "variables"),
    [
        (GITLAB, "2/4", "CI_NODE_INDEX and CI_NODE_TOTAL"),
        (CIRCLE, "1/3", "CIRCLE_NODE_INDEX and CIRCLE_NODE_TOTAL"),
        (SLURM, "3/5", "SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT"),
        ({"CI_NODE_TOTAL": "1"}, "1/1", "CI_NODE_TOTAL"),
        ({"CI_NODE_TOTAL": "1"} | SLURM, "3/5", "SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT"),
    ],
)
def test_auto_reads_the_shard_from_the_ci_environment(environ, shard, variables):
    found, origin = settled_shard(Shard(), environ, ORIGIN)
    assert (str(found), origin) == (shard, f"{ORIGIN}, {variables}")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "looked for GitLab (CI_NODE_INDEX and CI_NODE_TOTAL), CircleCI (CIRCLE_NODE_INDEX"),
        (
            {},
            "Slurm (SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT); instead of auto, write K/N, "
            "such as 2/4",
        ),
        (GITLAB | SLURM, "GitLab (CI_NODE_INDEX and CI_NODE_TOTAL) and Slurm (SLURM_ARRAY_TASK_ID"),
        (SLURM | {"SLURM_ARRAY_TASK_COUNT": "3"}, "array must be 1: --array=5-7"),
        (
            GITLAB | {"CI_NODE_INDEX": "5"},
            "CI_NODE_INDEX and CI_NODE_TOTAL from GitLab give shard 5 of 4",
        ),
        (GITLAB | {"CI_NODE_INDEX": "x"}, "CI_NODE_INDEX: must be a whole number (got"),
        ({"CIRCLE_NODE_INDEX": "1"}, "CIRCLE_NODE_TOTAL: must be a whole number (got nothing)"),
        (SLURM | {"SLURM_ARRAY_TASK_MIN": "8"}, "array must be 1"),
    ],
)
def test_auto_without_a_known_environment_lists_the_variables(environ, said):
    with pytest.raises(ConfigError) as error:
        settled_shard(Shard(), environ, ORIGIN)
    assert said in str(error.value)


# -- its part of a limit --------------------------------------------------------------------------


@given(st.integers(0, 10**18), st.integers(1, 1000))
def test_shares_add_up_to_the_whole_and_differ_by_at_most_one(amount, n):
    shares = [share_of(amount, one) for one in shards(n)]
    assert sum(shares) == amount
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


@given(st.floats(1e-6, 1e6))
def test_whole_units_never_exceed_the_amount(amount):
    units, windows = whole_units(amount)
    assert units >= 1
    assert Fraction(units, windows) <= Fraction(str(amount)) * (1 + Fraction(1, 10**9))


def test_every_row_and_the_budget_are_divided(pool):
    whole = pool("workers = 5, qps = 1.5, rpm = 61, tpm = 100_003, rpd = 10, tpd = 1_000_001")
    parts = [divided(whole, one).limits for one in shards(3)]
    key = [one["lab/key0"] for one in parts]
    assert [one.workers for one in key] == [2, 2, 1]
    assert [one.qps for one in key] == [0.5, 0.5, 0.5]  # 3 in 2 s
    assert [one.rpm for one in key] == [21, 20, 20]
    assert [one.tpm for one in key] == [33335, 33334, 33334]
    assert [one.rpd for one in key] == [4, 3, 3]
    assert sum(one.tpd for one in key) == 1_000_001
    budgets = [budget_units(one["pool"].budget) for one in parts]
    assert sum(budgets) == budget_units(0.1)
    assert divided(whole, Shard(1, 3)).undivided == whole.limits


@given(st.floats(1, 1_000_000), st.integers(1, 1000))
def test_parts_of_a_budget_never_exceed_the_whole(tmp_path_factory, budget, n):
    path = tmp_path_factory.getbasetemp() / "budget.toml"
    if not path.exists():
        path.write_text(POOL.replace("LIMITS", "workers = 1_000"))
    pool = load_pool(path, environ={}, overrides=Overrides(budget=budget))
    parts = [divided(pool, one).limits["pool"].budget for one in (Shard(1, n), Shard(n, n))]
    whole = budget_units(budget)
    for part, share in zip(parts, (-(-whole // n), whole // n), strict=True):
        assert 0 <= share - budget_units(part) <= 200  # the resolution of a float of this size


def test_origin_shows_the_shard_and_the_whole_limit(pool):
    whole = pool("workers = 5, qps = 1.5", max_workers=7)
    found = {one.name: one for one in divided(whole, Shard(1, 3)).effective}
    assert found["lab/key0 workers"].value == 2
    assert found["lab/key0 workers"].origin == "pool.toml, shard 1/3 of 5"
    assert found["lab/key0 qps"].origin == "pool.toml, shard 1/3 of 1.5 (3 in 2 s)"
    assert found["pool budget"].origin == "pool.toml, shard 1/3 of 0.100 USD"
    assert found["pool workers"].value == 3
    origin = "command line --ultrapar-max-workers, shard 1/3 of 7"
    assert found["pool workers"].origin == origin


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            "workers = 3",
            "workers = 3 of lab/key0 divided by 4 shards leaves 0 for shard 4/4; use at ",
        ),
        ("workers = 3", "; use at most 3 shards"),
        (
            "qps = 1.5",
            "qps = 1.5 (3 in 2 s) of lab/key0 divided by 4 shards leaves 0 for shard 4/4",
        ),
        (
            "rpm = 0.5",
            "rpm = 0.5 (1 in 120 s) of lab/key0 divided by 4 shards leaves 0 for shard 4/4",
        ),
        ("rpm = 0.5", "; use at most 1 shard"),
        ("rpd = 2", "rpd = 2 of lab/key0 divided by 4 shards"),
    ],
)
def test_limit_too_small_for_a_shard_is_refused_with_the_calculation(pool, limits, said):
    for one in shards(4):
        with pytest.raises(ConfigError) as error:
            divided(pool(limits), one)
        assert said in str(error.value)
