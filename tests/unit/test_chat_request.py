"""The request in the form that each API and model expects."""

import json

import pytest

from pytest_ultrapar.engine.endpoints import endpoints, request_body
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import EffectiveValue
from tests.unit.pool_texts import real, simulated

MESSAGES = [{"role": "user", "content": "Hi"}]
AZURE = 'api_version = "2024-10-21"'
AZURE_URL = 'base_url = "https://res.openai.azure.com"'


def only(pool):
    found = endpoints(pool, token_of=lambda *_: "sk-secret", base_url_of={})
    assert len(found) == 1
    return next(iter(found.values()))


def sent(endpoint, **parameters):
    return json.loads(request_body(endpoint, MESSAGES, parameters))


def test_openai_request_names_the_model_and_passes_all_parameters_on(load):
    endpoint = only(load(real()))
    assert endpoint.url == "https://api.example.com/v1/chat/completions"
    assert endpoint.authentication == {"authorization": "Bearer sk-secret"}
    extras = {"top_k": 5, "guided_json": {"type": "object"}, "chat_template_kwargs": {"a": True}}
    assert sent(endpoint, temperature=0, **extras) == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0,
        **extras,
    }


def test_azure_request_names_the_deployment_in_the_url_only(load):
    model = 'instances = [{ name = "m-2", api_name = "gpt/4o@x" }]'
    endpoint = only(load(real(AZURE, api="azure-openai", url=AZURE_URL, model=model)))
    assert endpoint.url == (
        "https://res.openai.azure.com/openai/deployments/gpt%2F4o%40x/chat/completions"
        "?api-version=2024-10-21"
    )
    assert endpoint.authentication == {"api-key": "sk-secret"}
    assert sent(endpoint) == {"messages": MESSAGES}
    assert "sk-secret" not in repr(endpoint)


@pytest.mark.parametrize(
    "fields",
    [("stream = true", ""), ("", "stream = true"), ("stream = false", "stream = true")],
)
def test_streamed_request_asks_for_usage(load, fields):
    provider, model = fields
    pool = load(real(provider, model=model))
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert sent(only(pool)) == {"model": "m", "messages": MESSAGES, **asked}
    assert EffectiveValue("p/m stream", True, "pool.toml") in pool.effective


@pytest.mark.parametrize(
    ("api", "url", "address", "headers"),
    [
        (
            "anthropic",
            "https://api.anthropic.com/",
            "https://api.anthropic.com/v1/messages",
            {"x-api-key": "sk-secret", "anthropic-version": "2023-06-01"},
        ),
        (
            "openai-responses",
            "https://api.example.com/v1",
            "https://api.example.com/v1/responses",
            {"authorization": "Bearer sk-secret"},
        ),
        (
            "gemini",
            "https://ai.example.com",
            "https://ai.example.com/v1beta/models/m:generateContent",
            {"x-goog-api-key": "sk-secret"},
        ),
    ],
)
def test_request_has_the_url_and_the_headers_of_its_api(load, api, url, address, headers):
    endpoint = only(load(real(api=api, url=f'base_url = "{url}"')))
    assert endpoint.url == address
    assert endpoint.authentication == headers


@pytest.mark.parametrize(
    ("api", "url"),
    [
        ("anthropic", "https://api.anthropic.com/v1"),
        ("anthropic", "https://api.anthropic.com/v1/messages/"),
        ("gemini", "https://ai.example.com/v1beta"),
    ],
)
def test_base_url_that_contains_the_apis_path_is_refused(load, api, url):
    with pytest.raises(ConfigError, match=r"provider\[0\].base_url must be the address without"):
        load(real(api=api, url=f'base_url = "{url}"'))


BOUNDED = [
    ("max_tokens = 50", "", {}, 50),
    ("max_tokens = 50", "max_tokens = 60", {}, 60),
    ("max_tokens = 50", "max_tokens = 60", {"max_tokens": 5}, 5),
    ("max_tokens = 50", "", {"max_completion_tokens": 5}, 5),
    ("", "", {}, 4096),
    ("", "", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, 6096),
]


@pytest.mark.parametrize(("provider", "model", "parameters", "most"), BOUNDED)
def test_max_tokens_come_from_the_suite_else_the_pool_else_the_api(
    load, provider, model, parameters, most
):
    url = 'base_url = "https://api.anthropic.com"'
    endpoint = only(load(real(provider, model=model, api="anthropic", url=url)))
    assert sent(endpoint, **parameters)["max_tokens"] == most


def test_max_tokens_of_the_pool_use_the_name_that_the_model_knows(load):
    provider = 'max_tokens = 50\nparameters = { max_tokens = "max_completion_tokens" }'
    pool = load(real(provider))
    assert sent(only(pool)) == {"model": "m", "messages": MESSAGES, "max_completion_tokens": 50}
    assert EffectiveValue("p/m max_tokens", 50, "pool.toml") in pool.effective


@pytest.mark.parametrize(
    ("provider", "model", "place"),
    [
        ("max_tokens = 0", "", "provider[0].max_tokens must be >= 1 (got 0)"),
        ("max_tokens = 5", "max_tokens = -1", "provider[0].model[0].max_tokens must be >= 1"),
    ],
)
def test_invalid_max_tokens_are_refused(load, provider, model, place):
    with pytest.raises(ConfigError) as error:
        load(real(provider, model=model))
    assert place in str(error.value)


def test_settings_of_a_model_override_its_provider(load):
    endpoint = only(load(real("stream = true", model="stream = false")))
    assert sent(endpoint) == {"model": "m", "messages": MESSAGES}
    provider = 'parameters = { max_tokens = "max_completion_tokens", seed = false, top_p = false }'
    model = 'parameters = { temperature = false, seed = true, top_p = "nucleus" }'
    pool = load(real(provider, model=model))
    found = sent(only(pool), max_tokens=9, temperature=0, seed=1, top_p=0.5, n=1)
    del found["messages"]
    assert found == {"model": "m", "max_completion_tokens": 9, "seed": 1, "nucleus": 0.5, "n": 1}
    noted = {one.name: one.value for one in pool.effective if "parameter" in one.name}
    assert noted == {
        "p/m parameter max_tokens": "max_completion_tokens",
        "p/m parameter temperature": "not sent",
        "p/m parameter top_p": "nucleus",
    }


def test_stream_options_can_be_left_out(load):
    endpoint = only(load(real("stream = true\nparameters = { stream_options = false }")))
    assert sent(endpoint) == {"model": "m", "messages": MESSAGES, "stream": True}


def test_two_parameters_are_never_sent_under_one_name(load):
    endpoint = only(load(real('parameters = { max_tokens = "max_completion_tokens" }')))
    for given in (
        {"max_tokens": 1, "max_completion_tokens": 2},
        {"max_completion_tokens": 2, "max_tokens": 1},
    ):
        with pytest.raises(TypeError, match="also sent as 'max_completion_tokens' to p/m/key0"):
            request_body(endpoint, MESSAGES, given)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{ model = false }", ".model must not affect "),
        ("{ a = 1 }", ".a must be true or false or a string (got 1)"),
        ("{ a = ['b'] }", "(got a list)"),
        ('{ a = "b c" }', ".a must consist of letters"),
        ('{ a = "" }', ".a must not be empty"),
        (
            '{ a = "stream" }',
            '.a must not affect "model" or "messages" or "stream" or "stream_options": the client',
        ),
        ('{ stream_options = "b" }', ".stream_options must not affect "),
        ("3", " must be a table (got 3)"),
    ],
)
def test_table_of_parameters_is_checked(load, table, message):
    for text in (real(f"parameters = {table}"), real(model=f"parameters = {table}")):
        with pytest.raises(ConfigError) as refusal:
            load(text)
        assert message in str(refusal.value)
        assert str(refusal.value).startswith("pool.toml: provider[0].")


def test_azures_base_url_must_be_the_resource(load):
    for end in ("/openai", "/openai/v1", "/openai/deployments/x"):
        url = AZURE_URL[:-1] + end + '"'
        with pytest.raises(ConfigError, match="base_url must be the resource's address"):
            load(real(AZURE, api="azure-openai", url=url))


METRICS = 'metrics_url = "http://localhost:8000/metrics"'


def test_each_instance_has_its_own_metrics_url(load):
    local = 'base_url = "http://localhost:8000/v1"'
    instances = (
        'instances = ["a", { name = "b", base_url = "http://localhost:9/v1" },'
        ' { name = "c", metrics_url = "http://localhost:9/m" }]'
    )
    found = load(real(METRICS, url=local, model=instances)).providers[0].models[0].instances
    general = "http://localhost:8000/metrics"
    assert [one.metrics_url for one in found] == [general, None, "http://localhost:9/m"]
    found = load(real(METRICS, url=local, model="ports = [8001, 8002]")).providers[0].models[0]
    assert [one.metrics_url for one in found.instances] == [
        "http://localhost:8001/metrics",
        "http://localhost:8002/metrics",
    ]
    assert load(real(METRICS)).providers[0].models[0].instances[0].metrics_url == general
    assert load(real()).providers[0].models[0].instances[0].metrics_url is None


def test_invalid_metrics_url_is_refused(load):
    with pytest.raises(ConfigError, match=r"provider\[0\].metrics_url must begin with https"):
        load(real('metrics_url = "http://example.com/metrics"'))
    with pytest.raises(ConfigError, match=r"provider\[0\].metrics_url does not apply to api = "):
        load(simulated(METRICS))
