"""Small pool files for tests. Each test adds its own fields."""

API_URL = "https://api.example.com/v1"


def simulated(
    provider="", *, model="", keys='[{ name = "key0" }]', top="", name="sim", named="echo"
):
    return f"""schema = 1
{top}
[[provider]]
name = "{name}"
api = "simulated"
keys = {keys}
{provider}

[[provider.model]]
name = "{named}"
{model}
"""


def real(
    provider="",
    *,
    model="",
    keys='[{ name = "key0", env = "KEY_0" }]',
    url=f'base_url = "{API_URL}"',
    api="openai",
    name="p",
):
    return f"""schema = 1

[[provider]]
name = "{name}"
api = "{api}"
{url}
keys = {keys}
{provider}

[[provider.model]]
name = "m"
{model}
"""


def without_schema(text):
    return text.removeprefix("schema = 1\n")
