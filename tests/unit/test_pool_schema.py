"""Fields of a pool file: unknown, missing or of the wrong type, each refused by one message."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import real, simulated

REFUSED = [
    pytest.param("", "schema is missing; write schema = 1 at the top of the file", id="empty"),
    pytest.param("schema = 2\nfoo = 1", "schema must be 1 (got 2)", id="schema2"),
    pytest.param('schema = "1"', "schema must be an integer (got a string)", id="schemastr"),
    pytest.param("schema = true", "schema must be an integer (got true)", id="schematrue"),
    pytest.param(
        "schema = 1", "provider is empty: a pool needs at least one [[provider]]", id="noprov"
    ),
    pytest.param(
        "schema = 1\n[provider]\nname='x'",
        "provider must be a list (got a table); write [[provider]]",
        id="provtable",
    ),
    pytest.param(
        simulated(top="pools = 3"),
        "pools is not a known field; did you mean pool? (allowed: pool, provider, role, schema)",
        id="unknown_top",
    ),
    pytest.param(
        simulated("per_keys = { workers = 3 }"),
        (
            "provider[0].per_keys is not a known field; did you mean per_key? (allowed: api, "
            "api_version, base_url, budget, ca_file, client_cert, client_key, day, keys, latency, "
            "max_tokens, metrics_url, model, name, parameters, per_key, per_key_model, proxy, "
            "proxy_env, qps, rate_mode, rpd, rpm, simulation_seed, stream, timeout_s, tpd, tpm, "
            "trust_env, workers)"
        ),
        id="unknown",
    ),
    pytest.param(
        simulated("zzz = 3"),
        (
            "provider[0].zzz is not a known field (allowed: api, api_version, base_url, "
            "budget, ca_file, client_cert, client_key, day, keys, latency, max_tokens, "
            "metrics_url, model, name, parameters, per_key, per_key_model, proxy, proxy_env, qps, "
            "rate_mode, rpd, rpm, simulation_seed, stream, timeout_s, tpd, tpm, trust_env, workers)"
        ),
        id="unknown_far",
    ),
    pytest.param(
        simulated("per_key = { worker = 3 }"),
        (
            "provider[0].per_key.worker is not a known field; did you mean workers? "
            "(allowed: budget, day, qps, rpd, rpm, tpd, tpm, workers)"
        ),
        id="unknown_lim",
    ),
    pytest.param(
        simulated("per_key = { workers = { fix = 3 } }"),
        (
            "provider[0].per_key.workers.fix is not a known field; did you mean fixed? "
            "(allowed: adaptive, fixed)"
        ),
        id="unknown_split",
    ),
    pytest.param(
        simulated(keys='[{name="key0", enviroment="A"}]'),
        (
            "provider[0].keys[0].enviroment is not a known field (allowed: budget, day, env, name, "
            "qps, rpd, rpm, tpd, tpm, workers)"
        ),
        id="unknown_key",
    ),
    pytest.param(
        simulated('"a\\u001b[31m b" = 3'),
        'provider[0] has a field called "a\\x1b[31m b", which is not known',
        id="quoted_field",
    ),
    pytest.param(
        simulated("price_per_mtok_in = 3"),
        "provider[0].price_per_mtok_in is not a known field; did you mean price_per_mtok_in of its "
        "models? (allowed: api, api_version, base_url, budget, ca_file, client_cert, client_key, "
        "day, keys, latency, max_tokens, metrics_url, model, name, parameters, per_key, "
        "per_key_model, proxy, proxy_env, qps, rate_mode, rpd, rpm, simulation_seed, stream, "
        "timeout_s, tpd, tpm, trust_env, workers)",
        id="model_field_of_a_provider",
    ),
    pytest.param(
        simulated(model="per_model = { workers = 3 }"),
        "provider[0].model[0].per_model is not a known field; did you mean per_key_model of the "
        "provider? (allowed: api_name, family, instances, keys, latency, latency_hint_s, "
        "max_tokens, multiply_by_prompt_types, name, parameters, per_instance, per_lane, persona, "
        "ports, ports_env, price_per_mtok_cache_write, price_per_mtok_cached, price_per_mtok_in, "
        "price_per_mtok_out, skill, stream, subject)",
        id="field_of_the_provider",
    ),
    pytest.param(
        simulated('per_key = { workers = "five" }'),
        "provider[0].per_key.workers must be an integer or a table (got a string); a table is "
        "{ fixed = ..., adaptive = ... }",
        id="type",
    ),
    pytest.param(
        simulated("per_key = { workers = 2.5 }"),
        "provider[0].per_key.workers must be an integer or a table (got 2.5); a table is "
        "{ fixed = ..., adaptive = ... }",
        id="type_frac",
    ),
    pytest.param(
        simulated("per_key = { workers = true }"),
        "provider[0].per_key.workers must be an integer or a table (got true); a table is "
        "{ fixed = ..., adaptive = ... }",
        id="type_bool",
    ),
    pytest.param(
        simulated("per_key = { qps = false }"),
        "provider[0].per_key.qps must be a number or a table (got false); a table is "
        "{ fixed = ..., adaptive = ... }",
        id="type_bool_qps",
    ),
    pytest.param(
        simulated("per_key = { qps = [1] }"),
        "provider[0].per_key.qps must be a number or a table (got a list); a table is "
        "{ fixed = ..., adaptive = ... }",
        id="type_list",
    ),
    pytest.param(
        simulated("timeout_s = 2020-01-01"),
        "provider[0].timeout_s must be a number (got a date or time)",
        id="type_date",
    ),
    pytest.param(
        simulated(keys='["sk-abcdef"]'),
        "provider[0].keys[0] must be a table (got a string)",
        id="type_keys",
    ),
    pytest.param(
        simulated(model='instances = "a"'),
        "provider[0].model[0].instances must be a list (got a string)",
        id="type_inst",
    ),
    pytest.param(
        simulated(model='instances = ["a", 5]'),
        "provider[0].model[0].instances[1] must be a string or a table (got 5)",
        id="type_inst2",
    ),
    pytest.param(
        simulated('per_key = { qps = { fixed = "x" } }'),
        "provider[0].per_key.qps.fixed must be a number (got a string)",
        id="type_split",
    ),
    pytest.param(
        simulated(model="skill = 1.5"),
        "provider[0].model[0].skill must be <= 1 (got 1.5)",
        id="skill",
    ),
    pytest.param(
        simulated(model='persona = "sloopy"'),
        (
            'provider[0].model[0].persona must be "echo" or "obedient" or "repairing" or '
            '"sloppy" (got "sloopy"); did you mean "sloppy"?'
        ),
        id="persona",
    ),
    pytest.param(
        simulated('latency = { kind = "normal", median_s = 1 }'),
        (
            'provider[0].latency.kind must be "fixed" or "log-normal" or "knee" (got "normal"); '
            'did you mean "log-normal"?'
        ),
        id="latkind",
    ),
    pytest.param(
        simulated('latency = { kind = "knee", median_s = 1 }'),
        'provider[0].latency.knee is missing: kind = "knee" needs it',
        id="noknee",
    ),
    pytest.param(
        simulated('latency = { kind = "fixed", median_s = 1, knee = 4 }'),
        'provider[0].latency.knee is for kind = "knee" only (got kind = "fixed")',
        id="fixknee",
    ),
    pytest.param(
        simulated('latency = { kind = "knee", median_s = 1, knee = 0 }'),
        "provider[0].latency.knee must be >= 1 (got 0)",
        id="knee0",
    ),
    pytest.param(
        simulated('latency = { kind = "fixed" }'),
        "provider[0].latency.median_s is missing",
        id="latmed",
    ),
    pytest.param(
        simulated('latency = { kind = "fixed", median_s = 1, sigma = 0.4 }'),
        ('provider[0].latency.sigma is for kind = "log-normal"; a fixed latency does not vary'),
        id="latsig",
    ),
    pytest.param(
        simulated(model='latency = { kind = "log-normal", median_s = 1 }'),
        'provider[0].model[0].latency.sigma is missing: kind = "log-normal" needs it',
        id="latnosig",
    ),
    pytest.param(
        simulated(model='latency = { kind = "log-normal", median_s = 1, sigma = 9 }'),
        "provider[0].model[0].latency.sigma must be <= 5 (got 9)",
        id="latsig9",
    ),
    pytest.param(
        'schema = 1\n[[provider]]\napi = "simulated"',
        "provider[0].name is missing; it is what results, limits and messages say",
        id="noname",
    ),
    pytest.param(
        'schema = 1\n[[provider]]\nname = "simulated"',
        'provider[0].api is missing; it must be "openai" or "azure-openai" or "openai-responses" '
        'or "anthropic" or "gemini" or "simulated"',
        id="noapi",
    ),
    pytest.param(
        real(api="openia"),
        (
            'provider[0].api must be "openai" or "azure-openai" or "openai-responses" or '
            '"anthropic" or "gemini" or "simulated" (got "openia"); '
            'did you mean "openai"?'
        ),
        id="badapi",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_schema_mistake_is_refused_with_one_clear_message(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"
