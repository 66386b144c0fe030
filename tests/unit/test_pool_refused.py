"""Mistakes in pool files, each refused by one message that names the place."""

import pytest

from pytest_ultrapar.errors import ConfigError
from tests.unit.pool_texts import real, simulated, without_schema

REFUSED = [
    # Invalid TOML.
    (
        "schema = 1\n[pool\nworkers = 3\n",
        "line 2 is not valid TOML: Expected ']' at the end of a table",
    ),
    (
        'schema = 1\nkeys = [{ name = "key0", api_key = "sk-abcdefgh }]\n',
        "line 2 is not valid TOML",
    ),
    ("schema = 1\nschema = 1\n", "line 2 is not valid TOML: Cannot overwrite a value"),
    ("schema = 1\nx = " + "[" * 3000 + "]" * 3000, "is nested too deeply"),
    # Fields that are unknown, missing or of the wrong type.
    ("", "schema is missing; write schema = 1 at the top of the file"),
    ("schema = 2\nfoo = 1", "schema must be 1 (got 2)"),
    ("schema = true", "schema must be an integer (got true)"),
    ("schema = 1", "provider is empty: a pool needs at least one [[provider]]"),
    ("schema = 1\n[provider]\nname='x'", "provider must be a list (got a table); write [[prov"),
    (simulated("per_keys = { workers = 3 }"), "provider[0].per_keys is not a known field; did you"),
    (simulated("per_key = { worker = 3 }"), "provider[0].per_key.worker is not a known field; did"),
    (simulated("per_key = { workers = { fix = 3 } }"), "provider[0].per_key.workers.fix is not a"),
    (simulated(keys='[{name="key0", enviroment="A"}]'), "provider[0].keys[0].enviroment is not a"),
    (simulated('"a\\u001b[31m b" = 3'), 'provider[0] has an unknown field "a\\x1b[31m b"'),
    (simulated("price_per_mtok_in = 3"), "provider[0].price_per_mtok_in is not a known field; did"),
    (simulated(model="per_model = { workers = 3 }"), "provider[0].model[0].per_model is not a"),
    (simulated('per_key = { workers = "five" }'), "provider[0].per_key.workers must be an integer"),
    (simulated("per_key = { qps = false }"), "provider[0].per_key.qps must be a number or a table"),
    (simulated("timeout_s = 2020-01-01"), "provider[0].timeout_s must be a number (got a date or"),
    (simulated(model='instances = "a"'), "provider[0].model[0].instances must be a list (got a"),
    (simulated(model='instances = ["a", 5]'), "provider[0].model[0].instances[1] must be a string"),
    (simulated(model="skill = 1.5"), "provider[0].model[0].skill must be <= 1 (got 1.5)"),
    (simulated(model='persona = "sloopy"'), 'provider[0].model[0].persona must be "echo" or'),
    (simulated('latency = { kind = "normal", median_s = 1 }'), "provider[0].latency.kind must be"),
    (simulated('latency = { kind = "knee", median_s = 1 }'), "provider[0].latency.knee is missing"),
    (simulated('latency = { kind = "fixed" }'), "provider[0].latency.median_s is missing"),
    (
        simulated('latency = { kind = "fixed", median_s = 1, sigma = 0.4 }'),
        'provider[0].latency.sigma requires kind = "log-normal" or "knee" (got kind = "fixed")',
    ),
    ('schema = 1\n[[provider]]\napi = "simulated"', "provider[0].name is missing; results, lim"),
    ('schema = 1\n[[provider]]\nname = "simulated"', "provider[0].api is missing; it must be"),
    (real(api="openia"), 'provider[0].api must be "openai" or "azure-openai" or'),
    (real("patterns = { contxt_length = [] }"), 'provider[0].patterns must be "too_large" or "con'),
    (real("patterns = { quota = 'x' }"), "provider[0].patterns.quota must be a list (got a str"),
    (real("patterns = { quota = ['(b'] }"), "provider[0].patterns.quota[0] must be a regular expr"),
    (
        real("patterns = { quota = ['b*'] }"),
        "provider[0].patterns.quota[0] must not match the empty",
    ),
    # Numbers out of range.
    (simulated("timeout_s = 0x1" + "0" * 5000), "provider[0].timeout_s "),
    (simulated("per_key = { qps = -5 }"), "provider[0].per_key.qps must be >= 1e-06 (got -5)"),
    (simulated("per_key = { qps = 1e-9 }"), "provider[0].per_key.qps must be >= 1e-06 (got 1e-09)"),
    (simulated("per_key = { qps = nan }"), "provider[0].per_key.qps must be >= 1e-06 (got nan)"),
    (simulated("per_key = { qps = inf }"), "provider[0].per_key.qps must be <= 1000000 (got inf)"),
    (
        simulated("per_key = { workers = 1" + "0" * 400 + " }"),
        "provider[0].per_key.workers must be <= 100000 (got a number above 1e18)",
    ),
    (simulated(model="per_instance = { rpm = 0 }"), "provider[0].model[0].per_instance.rpm must"),
    (simulated(model="per_lane = { workers = 100001 }"), "provider[0].model[0].per_lane.workers"),
    (simulated(top="[pool]\nworkers = 0"), "pool.workers must be >= 1 (got 0)"),
    (simulated("timeout_s = 86401"), "provider[0].timeout_s must be <= 86400 (got 86401)"),
    (simulated(model="price_per_mtok_in = -1"), "provider[0].model[0].price_per_mtok_in must be"),
    # Names that are empty, invalid, duplicate or unknown.
    (simulated() + without_schema(simulated()), 'provider[1].name must be unique (got "sim", as'),
    (simulated(keys='[{ name = "a" }, { name = "a" }]'), "provider[0].keys[1].name must be unique"),
    (simulated(model='instances = ["a", "a"]'), "provider[0].model[0].instances[1] must be unique"),
    (simulated(model='instances = ["key0"]'), 'provider[0].model[0].instances[0] "key0" is also'),
    (simulated(name="pool"), 'provider[0].name must not be "pool": the limit on the whole pool'),
    (simulated(name=""), "provider[0].name must not be empty"),
    (simulated(name="a/b"), "provider[0].name must consist of letters, digits and . _ : - (got"),
    (simulated(named="a" * 101), "provider[0].model[0].name must have at most 100 characters (got"),
    (simulated(keys='[{ name = "sk-abcdef" }]'), "provider[0].keys[0].name looks like a secret"),
    (simulated(model="instances = []"), "provider[0].model[0].instances must name at least one"),
    (simulated(keys="[]"), "provider[0].keys is empty: a provider needs a key, such as { name"),
    (
        'schema = 1\n[[provider]]\nname = "p"\napi = "simulated"\nkeys = [{ name = "k" }]',
        "provider[0].model is empty: a provider needs at least one [[provider.model]]",
    ),
    (
        real(model='api_name = "a"\ninstances = ["m"]'),
        "provider[0].model[0].api_name cannot be combined with instances",
    ),
    (real(model='api_name = "a b"'), "provider[0].model[0].api_name must consist of letters,"),
    (
        real(model='keys = ["key1"]'),
        "provider[0].model[0].keys[0] must be one of this provider's keys",
    ),
    (real(model="keys = []"), "provider[0].model[0].keys must name at least one key (got none);"),
    (
        simulated(
            keys="[" + ",".join(f'{{name="k{i}"}}' for i in range(101)) + "]",
            model="instances = [" + ",".join(f'"i{i}"' for i in range(100)) + "]",
        ),
        "provider[0] gives the pool more than 10000 lanes (instances x keys)",
    ),
    # Addresses, ports and settings of one API.
    (real(keys='[{ name = "k" }]'), 'provider[0].keys[0].env is missing: api = "openai" requires'),
    (real(url=""), 'provider[0].base_url is missing: api = "openai" requires it'),
    (real(url='base_url = "api.example.com/v1"'), "provider[0].base_url must begin with https://"),
    *(
        (real(url=f'base_url = "{url}"'), f"provider[0].base_url must {what}")
        for url, what in (
            (
                "https://me:canary@api.example.com/v1",
                "not contain a user name or password: secrets",
            ),
            ("http://api.example.com/v1", "begin with https://: http:// would send the key un"),
            ("ftp://api.example.com/v1", 'begin with https:// (got scheme "ftp")'),
            ("https://a.example:99999/v1", 'be a URL such as "https://api.example.com/v1" (its h'),
            ("https://a.example/v1?key=canary", "not contain a query or fragment (`?` or `#`)"),
            ("https://169.254.169.254/v1", "not be a link-local address (got"),
            ("https://[::1/v1", "be a URL such as"),
        )
    ),
    (simulated('base_url = "http://127.0.0.1:8000"'), "provider[0].base_url is not used by api ="),
    (simulated('api_version = "2024-10-21"'), "provider[0].api_version requires api ="),
    (real(api="azure-openai"), 'provider[0].api_version is missing: api = "azure-openai" requires'),
    (real(model="skill = 1.5"), "provider[0].model[0].skill must be <= 1 (got 1.5)"),
    (real('latency = { kind = "fixed" }'), "provider[0].latency.median_s is missing"),
    (simulated(model="ports = [8001]"), "provider[0].model[0].ports requires a base_url; a"),
    (real(model="ports = [0]"), "provider[0].model[0].ports[0] must be >= 1 (got 0)"),
    (real(model="ports = []"), "provider[0].model[0].ports must name at least one port (got none)"),
    (
        real(model='ports = [8001]\ninstances = ["m"]'),
        "provider[0].model[0].instances cannot be combined with ports",
    ),
    (real(model='ports_env = "VLLM_PORTS"'), "provider[0].model[0].ports_env names the"),
    (real(model='ports_env = "sk-canary"'), "provider[0].model[0].ports_env must be the name of"),
    (
        simulated(model='instances = [{ name = "a", base_url = "https://x.example" }]'),
        "provider[0].model[0].instances[0].base_url is not used by a simulated provider; leave it",
    ),
    # Secrets, contradictions, endless nesting.
    ("schema = 1\n" + ".".join("a" * 200) + " = 1", "is nested more than 8 levels deep"),
    ("schema = 1" + "0" * 5000, "contains a number with too many digits"),
    (simulated(keys='[{ name = "k", api_key = "sk-canary" }]'), "provider[0].keys[0].api_key is"),
    (simulated(keys='[{ name = "k", env = "sk-canary" }]'), "provider[0].keys[0].env must be the"),
    (
        simulated('key = "sk-canary"'),
        "provider[0].key is refused: the pool file must not contain secr",
    ),
    (simulated(keys='[{ name = "k", env = "" }]'), "provider[0].keys[0].env must be the name of"),
    (simulated(keys='[{ name = "k", env = 5 }]'), "provider[0].keys[0].env must be the name of an"),
    (
        simulated("per_key = { workers = { fixed = 2 } }", top='[pool]\nrate_mode = "adaptive"'),
        "provider[0].per_key.workers.adaptive is missing: adaptive mode requires its own value",
    ),
    (
        simulated("per_key = { workers = { fixed = 9, adaptive = 5 } }"),
        "provider[0].per_key.workers.adaptive = 5 contradicts provider[0].per_key.workers.fixed =",
    ),
    (simulated("per_key = { qps = 10, rpm = 5 }"), "provider[0].per_key.rpm = 5 contradicts"),
    (simulated("per_key = { rpd = 0.5 }"), "provider[0].per_key.rpd must be an integer or a table"),
    (simulated('per_key = { rpm = 5, day = "UTC" }'), "provider[0].per_key.day has no effect"),
    (simulated(top='[pool]\nrate_mode = "fast"'), 'pool.rate_mode must be "fixed" or "adaptive"'),
    (simulated("per_key = { workers = { adaptive = 5 } }"), "provider[0].per_key.workers.fixed is"),
    (simulated(model="multiply_by_prompt_types = true"), "provider[0].model[0].multiply_by_prompt"),
    *(
        (simulated(f'per_key = {{ rpd = 5, day = "{name}" }}'), "provider[0].per_key.day must be a")
        for name in ("America", "America/Los_Angelos", "localtime", "posixrules", "Factory")
    ),
]


@pytest.mark.parametrize(
    ("text", "message"), REFUSED, ids=[f"{at} {said[:40]}" for at, (_, said) in enumerate(REFUSED)]
)
def test_mistake_is_refused_with_one_clear_message(load, text, message):
    """`message` is the message, or its beginning if it is long."""
    with pytest.raises(ConfigError) as refusal:
        load(text)

    assert str(refusal.value).startswith(f"pool.toml: {message}")


CANARY = "sk-canary-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        simulated(f'key = "{CANARY}"'),
        simulated(f'api_key = "{CANARY}'),
        simulated(f'name = "{CANARY}"'),
        simulated(f'workers = "{CANARY}"'),
        simulated(f'latency = {{ kind = "{CANARY}", median_s = 1 }}'),
        simulated(f'"{CANARY}" = 3'),
        simulated(f"{CANARY} = 3"),
        simulated(keys=f'["{CANARY}"]'),
        simulated(keys=f'"{CANARY}"'),
        simulated(keys=f'[{{ name = "{CANARY}" }}]'),
        simulated(keys=f'[{{ name = "k", env = "{CANARY}" }}]'),
        simulated(keys=f'[{{ name = "k", env = {CANARY} }}]'),
        simulated(keys=f'[{{ name = "k", Authorization = "Bearer {CANARY}" }}]'),
        simulated(model=f'keys = ["{CANARY}"]'),
        simulated(model=f'persona = "{CANARY}"'),
        simulated(model=f'ports_env = "{CANARY}"'),
        simulated(name=CANARY) + without_schema(simulated(name=CANARY)),
        real(url=f'base_url = "https://{CANARY}@api.example.com"'),
        real(url=f'base_url = "https://api.example.com?key={CANARY}"'),
        real(url=f'base_url = "https://api.example.com/{CANARY}#"'),
        real(url=f'base_url = "https://me:{CANARY}@api.example.com'),
        real(url=f'base_url = "{CANARY}"'),
    ],
)
def test_refusal_never_shows_a_secret(load, text):
    with pytest.raises(ConfigError) as refusal:
        load(text)

    assert "canary" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "-k", ":a"])
@pytest.mark.parametrize(
    "text",
    [
        lambda name: simulated(name=name),
        lambda name: simulated(keys=f'[{{ name = "{name}" }}]'),
        lambda name: simulated(named=name),
        lambda name: real(model=f'instances = ["{name}"]'),
        lambda name: simulated() + f'[role."{name}"]\nmodel = "echo"',
    ],
    ids=["provider", "key", "model", "instance", "role"],
)
def test_name_that_looks_like_a_folder_or_option_is_refused(load, text, name):
    with pytest.raises(ConfigError, match=r"must begin with a letter|has an unknown field"):
        load(text(name))


@pytest.mark.parametrize("name", ["..", ".", "../other", "a/../b", "a/.."])
def test_api_name_cannot_change_the_url(load, name):
    with pytest.raises(ConfigError, match=r"api_name must not be \"\.\" or contain"):
        load(real(model=f'api_name = "{name}"'))


@pytest.mark.parametrize("name", ["org/model", "@cf/meta/x", "/models/x", "./x", "a..b"])
def test_api_name_may_be_a_path(load, name):
    pool = load(real(model=f'api_name = "{name}"'))
    assert pool.providers[0].models[0].instances[0].api_name == name
