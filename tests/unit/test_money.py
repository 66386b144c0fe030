"""Prices, their origin, and the cost of requests."""

from __future__ import annotations

import builtins
from fractions import Fraction

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.compare.comparison import compare_runs
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.money import UNITS, ModelPrice, Tier, amount_of
from pytest_ultrapar.pool.price_book import with_book_prices
from tests.unit.finished_run import (
    LANE,
    NOW,
    attempt,
    case,
    episode,
    grade,
    make_run,
    write_journal,
)
from tests.unit.test_report_summary import lines as told_of

POOL = """\
schema = 1
[pool]
{pool}
[[provider]]
name = "p"
api = "openai"
base_url = "{url}"
keys = [{{ name = "key0", env = "A" }}]
[[provider.model]]
name = "m"
api_name = "gpt-4o-mini"
{model}
"""
OPENAI = "https://api.openai.com/v1"
BOOK = 'prices = "genai-prices"'
PRICE = ModelPrice("azure", "m1", 2.0, 10.0, 0.5, origin="pool.toml")


def pool_text(pool="", url=OPENAI, model=""):
    return POOL.format(pool=pool, url=url, model=model)


@given(
    st.decimals(0, 1000, places=6),
    st.decimals(0, 1000, places=6),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_cost_is_exact_for_prices_with_six_decimals(per_in, per_out, tokens_in, tokens_out):
    price = ModelPrice("p", "m", float(per_in), float(per_out))
    exact = (tokens_in * Fraction(per_in) + tokens_out * Fraction(per_out)) / 10**6
    assert Fraction(price.cost(tokens_in, tokens_out), UNITS) == exact


def test_cached_tokens_have_their_own_price_or_the_price_of_input():
    assert amount_of(PRICE.cost(10**6, 0, cached=4 * 10**5)) == 0.6 * 2 + 0.4 * 0.5
    assert ModelPrice("p", "m", 2.0, 10.0).cost(10, 1, cached=4) == 30 * 10**6


def test_tokens_written_to_a_cache_have_their_own_price_or_the_price_of_input():
    price = ModelPrice("p", "m", 3.0, 15.0, 0.3, 3.75)
    assert price.cost(1000, 10, cached=300, written=200) == (
        500 * 3_000_000 + 300 * 300_000 + 200 * 3_750_000 + 10 * 15_000_000
    )
    assert PRICE.cost(1000, 0, written=200) == 1000 * 2 * 10**6
    # Cached and written tokens never count for more than the prompt.
    assert price.cost(10, 0, cached=8, written=8) == 8 * 300_000 + 2 * 3_750_000
    # The number of written tokens is unknown before the request.
    assert price.most(1000, 10) == 1000 * 3_750_000 + 10 * 15_000_000
    assert PRICE.most(1000, 10) == PRICE.cost(1000, 10)


def test_longer_prompts_may_cost_more():
    price = ModelPrice("p", "m", 1.0, 2.0, tiers=(Tier(200_000, 3.0, 4.0), Tier(500_000, 5.0, 6.0)))
    assert price.cost(200_000, 1) == (200_000 * 1 + 2) * 10**6
    assert price.cost(200_001, 1) == (200_001 * 3 + 4) * 10**6
    assert price.cost(600_000, 1) == (600_000 * 5 + 6) * 10**6


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ('currency = "dollars"', "pool.currency must be a three-letter currency code, such as"),
        ('prices = "litellm"', 'pool.prices must be "genai-prices"'),
        (f'currency = "EUR"\n{BOOK}', 'pool.currency = "EUR" cannot be combined with prices'),
    ],
)
def test_currency_and_book_are_checked(load, said, refusal):
    with pytest.raises(ConfigError, match=r"pool\.toml") as caught:
        load(pool_text(said))
    assert refusal in str(caught.value)


def test_price_book_fills_in_prices_that_the_pool_leaves_out(load):
    from genai_prices.data_snapshot import get_snapshot

    pool = with_book_prices(load(pool_text(BOOK)))
    (price,) = pool.prices
    assert price.origin.startswith("genai-prices 0.")
    _, listed = get_snapshot().find_provider_model("gpt-4o-mini", None, "openai", None)
    assert price.per_mtok_in == float(listed.prices.input_mtok)
    assert price.per_mtok_out == float(listed.prices.output_mtok)
    assert price.per_mtok_cached == float(listed.prices.cache_read_mtok)
    assert price.per_mtok_cache_write is None


def test_price_of_the_pool_overrides_the_book(load):
    whole = "price_per_mtok_in = 7\nprice_per_mtok_out = 8\n"
    (price,) = with_book_prices(load(pool_text(BOOK, model=whole))).prices
    assert (price.per_mtok_in, price.per_mtok_out, price.origin) == (7, 8, "pool.toml")
    assert with_book_prices(load(pool_text(BOOK, model="price_per_mtok_in = 7\n"))).prices == ()


def test_prices_by_length_of_the_prompt_are_taken_from_the_book(load):
    url = "https://generativelanguage.googleapis.com/v1beta/openai"
    text = pool_text(BOOK, url=url).replace("gpt-4o-mini", "gemini-2.5-pro")
    (price,) = with_book_prices(load(text)).prices
    assert [tier.above for tier in price.tiers] == [200_000]
    assert price.tiers[0].per_mtok_in > price.per_mtok_in


def test_missing_price_book_is_named_with_the_pip_line(load, monkeypatch):
    imported = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("genai_prices"):
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    pool = load(pool_text(BOOK))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'pytest-ultrapar\[prices\]'"):
        with_book_prices(pool)


def priced_run(path, prices=(PRICE,), tokens_out=2, **fields):
    run = make_run(path, [case(0), case(1)], pool_lanes=(LANE,), prices=prices, **fields)
    first = [attempt(1.0, 1.5, outcome="rate"), attempt(2.0, 3.0, tokens_in=1000, tokens_out=100)]
    second = [
        attempt(2.0, 3.0, outcome="timeout", maybe_billed=True),
        attempt(4.0, 5.0, tokens_in=500, tokens_out=tokens_out),
    ]
    write_journal(
        run,
        "gw0",
        episode(0, 1.0, 3.0, attempts=first),
        grade(0),
        episode(1, 2.0, 5.0, attempts=second),
        grade(1),
    )
    return run


def test_cost_is_in_tables_summary_and_benchmark(tmp_path):
    run = priced_run(tmp_path / "run", tokens_out=10)
    summary = compact(run.path)
    attempts = pq.read_table(run.path / "attempts.parquet")
    assert attempts.column_names[-4:-2] == ["cost", "host"]
    assert attempts["cost"].to_pylist() == [0.0, 0.003, None, 0.0011]
    results = pq.read_table(run.path / "results.parquet")
    assert results.column_names[-8:-6] == ["cost", "host"]
    assert results["cost"].to_pylist() == [0.003, 0.0011]
    assert summary.cost is not None
    assert (summary.cost.total, summary.cost.by_model) == (0.0041, {"m1": 0.0041})
    assert summary.statistics.cost == 0.0041
    said = told_of(summary)
    assert "cost 0.00410 USD, 0.00205 USD per graded case, at prices from pool.toml" in said
    benchmark = msgspec.json.decode((run.path / "benchmark.json").read_bytes())
    extra = benchmark["benchmarks"][0]["extra_info"]
    assert (extra["cost"], extra["currency"]) == (0.0041, "USD")


def test_compare_shows_the_cost_unless_currencies_differ(tmp_path):
    runs = []
    for number, tokens_out, currency in ((0, 10, "USD"), (1, 110, "USD"), (2, 110, "EUR")):
        run = priced_run(
            tmp_path / str(number),
            tokens_out=tokens_out,
            currency=currency,
            ended_at=NOW,
        )
        compact(run.path)
        runs.append(find_measured_run(str(run.path)))
    costlier, elsewhere = compare_runs(runs[0], runs[1:])
    assert costlier.figures["cost"].base == pytest.approx(0.0041 / 2)
    assert costlier.figures["cost"].new == pytest.approx(0.0051 / 2)
    assert "cost" not in elsewhere.figures


def test_model_on_a_server_outside_the_book_has_no_price(load):
    assert with_book_prices(load(pool_text(BOOK, url="http://localhost:8000/v1"))).prices == ()
