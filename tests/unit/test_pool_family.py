"""Models of one family share a provider's limit for each pair of key and model."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit
from tests.unit.pool_texts import simulated

BOUNDS = "per_key_model = { workers = 2 }"


def models(*own):
    return "".join(f'[[provider.model]]\nname = "{name}"\n{more}\n' for name, more in own)


FAMILY = 'family = "small"'


def test_models_of_a_family_share_the_limit_of_key_and_model(load):
    own = models(("b", FAMILY), ("apart", ""))
    pool = load(simulated(BOUNDS, model=FAMILY) + own)

    assert pool.limits == {
        "sim/key0/small": Limit("sim/key0/small", "key_model", 2),
        "sim/key0/apart": Limit("sim/key0/apart", "key_model", 2),
    }
    assert pool.seats(pool.lanes) == 4
    assert pool.seats((*pool.lanes_of("echo"), *pool.lanes_of("b"))) == 2


def test_model_belongs_to_the_family_with_its_name(load):
    pool = load(simulated(BOUNDS) + models(("b", 'family = "echo"')))

    assert list(pool.limits) == ["sim/key0/echo"]
    assert pool.seats(pool.lanes) == 2


def test_family_belongs_to_one_provider(load):
    second = simulated(BOUNDS, model=FAMILY).replace("schema = 1", "").replace('"sim"', '"other"')
    pool = load(simulated(BOUNDS, model=FAMILY) + second)

    assert list(pool.limits) == ["sim/key0/small", "other/key0/small"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            simulated(model=FAMILY),
            "provider[0].model[0].family has no effect: the provider has no per_key_model to share",
        ),
        (
            simulated(BOUNDS, model='family = "a/b"'),
            'provider[0].model[0].family must consist of letters, digits and . _ : - (got "a/b")',
        ),
        (
            simulated(
                BOUNDS,
                model=f"{FAMILY}\nmultiply_by_prompt_types = true",
                top="[pool]\nprompt_types = 3",
            )
            + models(("b", FAMILY)),
            'provider[0].model[1].family = "small" is shared with model "echo": models in '
            "one family must have the same multiply_by_prompt_types",
        ),
    ],
)
def test_invalid_family_is_refused(load, text, message):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == f"pool.toml: {message}"
