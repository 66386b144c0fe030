"""`workers` times the number of prompt types: multiplied, unchanged and refused values."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import EffectiveValue, Limit
from tests.unit.pool_texts import simulated

THREE = "[pool]\nprompt_types = 3"
TIMES = "multiply_by_prompt_types = true"
TWO, MANY = (f"per_instance = {{ workers = {n} }}" for n in (2, 50_000))
HERE = "provider[0].model[0]"


def test_workers_are_multiplied_and_rates_are_not(load):
    provider = "per_key = { workers = 900 }\nper_key_model = { workers = 4 }"
    model = f"per_instance = {{ workers = 200, qps = 5 }}\nper_lane = {{ workers = 2 }}\n{TIMES}"
    pool = load(simulated(provider, model=model, top=THREE))

    assert {limit.level: limit for limit in pool.limits.values()} == {
        "key": Limit("sim/key0", "key", 900),
        "key_model": Limit("sim/key0/echo", "key_model", 12),
        "instance": Limit("sim/echo", "instance", 600, 5.0),
        "lane": Limit("sim/echo/key0 lane", "lane", 6),
    }


def test_origin_of_a_product_shows_its_factors(load):
    pool = load(simulated(model=f"per_instance = {{ workers = 200 }}\n{TIMES}", top=THREE))

    origin = "pool.toml, 200 x 3 prompt types"
    assert EffectiveValue("sim/echo workers", 600, origin) in pool.effective
    assert EffectiveValue("prompt_types", 3, "pool.toml") in pool.effective


@pytest.mark.parametrize(("top", "selected", "n"), [("", 2, 2), ("", None, 1), (THREE, 2, 3)])
def test_number_of_prompt_types_is_the_pools_or_else_the_runs(load, top, selected, n):
    text = simulated(model=f"per_instance = {{ workers = 200 }}\n{TIMES}", top=top)
    pool = load(text, prompt_types=lambda: selected)

    assert pool.limits["sim/echo"].workers == 200 * n
    origin = "prompt types that the run selects"
    assert (EffectiveValue("prompt_types", 2, origin) in pool.effective) == (n == 2)


def test_prompt_types_are_not_counted_if_nothing_is_multiplied(load):
    load(simulated(model=TWO), prompt_types=lambda: 1 / 0)


def test_one_prompt_type_multiplies_nothing(load):
    top = "[pool]\nprompt_types = 1"
    pool = load(simulated(model=f"per_instance = {{ workers = 200 }}\n{TIMES}", top=top))

    assert EffectiveValue("sim/echo workers", 200, "pool.toml") in pool.effective


def test_models_without_the_setting_keep_their_workers(load):
    other = '[[provider.model]]\nname = "other"\nper_instance = { workers = 7 }\n'
    text = simulated(model=f"per_instance = {{ workers = 2 }}\n{TIMES}", top=THREE)
    pool = load(text + other)

    assert pool.limits["sim/echo"].workers == 6
    assert pool.limits["sim/other"].workers == 7


@pytest.mark.parametrize(
    ("top", "model", "message"),
    [
        (THREE, TWO, f"pool.prompt_types has no effect: no model has {TIMES}"),
        (THREE, TIMES, f"{HERE}.{TIMES} has no effect: set workers in per_instance,"),
        (THREE, f"{MANY}\n{TIMES}", f"{HERE}.per_instance.workers times 3 prompt types must be"),
        ("[pool]\nprompt_types = 1001", TIMES, "pool.prompt_types must be <= 1000 (got 1001)"),
    ],
)
def test_invalid_multiplication_is_refused(load, top, model, message):
    with pytest.raises(ConfigError) as refusal:
        load(simulated(model=model, top=top))

    assert str(refusal.value).startswith(f"pool.toml: {message}")
