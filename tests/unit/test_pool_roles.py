from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.session.settings import selected_models

JUDGE = '[role.judge]\nmodel = "j"\n'
NAMES = ("m", "n", "j", "k")
NAMED = "role.judge.model must name a model in the pool"


def text(roles="", *, subject=None, names=("m", "j")):
    """A pool file with these models. `subject` gives the field `subject` of some models."""
    said = {name: f"subject = {str(word).lower()}" for name, word in (subject or {}).items()}
    models = "".join(
        f'[[provider.model]]\nname = "{name}"\n{said.get(name, "")}\n' for name in names
    )
    keys = 'keys = [{ name = "key0" }]'
    return f'schema = 1\n{roles}\n[[provider]]\nname = "sim"\napi = "simulated"\n{keys}\n{models}'


def test_model_with_a_role_makes_no_cases_unless_it_is_a_subject(load):
    pool = load(text(JUDGE))
    assert (pool.roles, pool.models, pool.subjects) == ({"judge": "j"}, ("m", "j"), ("m",))
    assert load(text(JUDGE, subject={"j": True})).subjects == ("m", "j")
    assert load(text(subject={"j": False})).subjects == ("m",)
    assert [(one.name, one.value, one.origin) for one in pool.effective if "role" in one.name] == [
        ("role judge model", "j", "pool.toml")
    ]


def test_model_of_two_providers_has_one_value_of_subject(load):
    other = text(names=("j",)).replace("schema = 1", "").replace('"sim"', '"other"')
    assert load(text(subject={"j": False}) + other).subjects == ("m",)
    with pytest.raises(ConfigError) as refusal:
        load(text(subject={"j": False}) + other + "subject = true\n")
    assert str(refusal.value) == (
        "pool.toml: provider[1].model[0].subject must be false, as in "
        "provider[0].model[1].subject: "
        "both tables are for the model j"
    )


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ("[role.judge]", "role.judge.model is missing; it names the model in the pool that has"),
        ('[role.judge]\nmodle = "j"', "role.judge.modle is not a known field; did you mean model?"),
        ('[role.judge]\nmodel = "gpt"', "role.judge.model must name a model in the pool"),
        ('[role.judge]\nmodel = "judge"', f'{NAMED} (got "judge"); the pool has m, j'),
        ('[role.a]\nmodel = "m"\n[role.b]\nmodel = "j"', "provider has no model that gets cases:"),
    ],
)
def test_invalid_role_is_refused_with_one_sentence(load, roles, message):
    with pytest.raises(ConfigError) as refusal:
        load(text(roles))
    assert str(refusal.value).startswith(f"pool.toml: {message}")


def test_models_of_roles_cannot_be_selected(load):
    pool = load(text(JUDGE))
    assert selected_models(pool, ["*"], pool.subjects) == ("m",)
    with pytest.raises(ConfigError) as refusal:
        selected_models(pool, ["j"], pool.subjects)
    assert str(refusal.value) == (
        "--ultrapar-model 'j' matches no model in pool.toml that gets cases; allowed: m"
    )


@given(
    roles=st.dictionaries(st.sampled_from(["judge", "critic", "user"]), st.sampled_from(NAMES)),
    subject=st.dictionaries(st.sampled_from(NAMES), st.booleans()),
)
def test_models_make_cases_if_subject_is_true_or_else_without_a_role(
    tmp_path_factory, roles, subject
):
    path = tmp_path_factory.getbasetemp() / "roles.toml"
    tables = "".join(f'[role.{role}]\nmodel = "{model}"\n' for role, model in roles.items())
    path.write_text(text(tables, subject=subject, names=NAMES), encoding="utf-8")
    wanted = tuple(one for one in NAMES if subject.get(one, one not in roles.values()))
    if wanted:
        pool = load_pool(path, environ={}, overrides=Overrides())
        assert (pool.roles, pool.subjects, pool.models) == (roles, wanted, NAMES)
    else:
        with pytest.raises(ConfigError, match="no model that gets cases"):
            load_pool(path, environ={}, overrides=Overrides())
