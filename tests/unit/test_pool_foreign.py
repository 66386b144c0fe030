"""A pool file from another person: the variables that it may send, and the notes on them."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.keys import sent_lines
from tests.unit.pool_texts import real, simulated

GITHUB = 'base_url = "https://models.github.ai/inference"'
NOT_GITHUB = 'base_url = "https://models.github.ai.example.com/v1"'


def keys(*names):
    entries = (f'{{ name = "k{i}", env = "{name}" }}' for i, name in enumerate(names))
    return f"[{', '.join(entries)}]"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (real(keys=keys("KEY_0", "AWS_SECRET_ACCESS_KEY")), "keys[1].env names AWS_SECRET_A"),
        (real(keys=keys("TWINE_PASSWORD"), url='base_url = "http://localhost:1"'), "keys[0].env"),
        (
            real(keys=keys("CI_JOB_TOKEN")),
            "another tool and would be sent to api.example.com; to use it on purpose",
        ),
        (real(keys=keys("GITHUB_TOKEN"), url=NOT_GITHUB), "to models.github.ai.example.com;"),
        (real('ca_file = "ca.pem"', keys=keys("GITHUB_TOKEN"), url=GITHUB), "keys[0].env"),
        (
            real(
                keys=keys("GH_TOKEN"),
                url=GITHUB,
                model='instances = [{ name = "a", base_url = "https://evil.example" }, "b"]',
            ),
            "would be sent to evil.example, models.github.ai",
        ),
        (real('proxy_env = "ULTRAPAR_CLUSTER"'), "provider[0].proxy_env names ULTRAPAR_CLUSTER"),
        (
            real(model='ports_env = "PGPASSWORD"'),
            "model[0].ports_env names PGPASSWORD: its value",
        ),
    ],
)
def test_variable_of_other_tools_is_refused(load, text, field):
    with pytest.raises(ConfigError) as refused:
        load(text)
    assert field in str(refused.value)


@pytest.mark.parametrize(
    "variable",
    [
        *("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"),
        *("AWS_BEARER_TOKEN_BEDROCK", "HF_TOKEN", "CLOUDFLARE_API_TOKEN", "GITHUB_MODELS_TOKEN"),
    ],
)
def test_key_of_a_model_api_may_be_sent_to_any_server(load, variable):
    load(real(keys=keys(variable)))


def test_githubs_token_may_be_sent_to_githubs_models(load):
    load(real(keys=keys("GITHUB_TOKEN"), url=GITHUB))
    load(simulated(keys=keys("GITHUB_TOKEN")))


def test_host_name_with_lookalike_letters_is_refused(load):
    with pytest.raises(ConfigError, match="base_url must name its host in ASCII"):
        load(real(url='base_url = "https://\u0430pi.openai.com/v1"'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (real(), ["p sends KEY_0 to api.example.com"]),
        (
            real(keys=keys("A_1", "OTHER", *(f"K{n}" for n in range(10)))),
            ["p sends A_1, OTHER, K0 to K9 (10) to api.example.com"],
        ),
        (
            real(model='instances = ["a", { name = "b", base_url = "https://b.example:8/v1" }]'),
            ["p sends KEY_0 to api.example.com, b.example"],
        ),
        (
            real(
                'proxy = "http://proxy.example:3128"\nca_file = "/ca\\u001b.pem"\n'
                'client_cert = "/me.pem"'
            ),
            [
                "p sends KEY_0 to api.example.com, through the proxy http://proxy.example:3128, "
                r"trusting the CAs in /ca\x1b.pem, presenting /me.pem"
            ],
        ),
        (simulated(keys=keys("KEY_0")), []),
    ],
)
def test_each_variable_is_named_with_the_hosts_that_get_it(load, text, said):
    pool = load(text)
    assert list(sent_lines(pool, pool.lanes)) == said


def test_only_keys_in_use_are_named(load):
    pool = load(real(keys=keys("KEY_0", "KEY_1"), model='keys = ["k1"]'))
    assert list(sent_lines(pool, pool.lanes)) == ["p sends KEY_1 to api.example.com"]
