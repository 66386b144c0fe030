"""The identity of a key: its secret and its server, in every spelling of the address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.pool.network import address_of, check_base_url, server_of

CANARY = "sk-canary-4f9a1c77e2b05d"
HERE = ("localhost", "127.0.0.1", "[::1]")
secrets = st.sampled_from(["sk-one", "sk-two", CANARY])
ports = st.sampled_from([80, 443, 8000, 8001])
paths = st.lists(st.sampled_from(["v1", "anthropic", "openai", "x~y", "a%20b"]), max_size=3)
hosts = st.sampled_from(["localhost", "127.0.0.2", "api.example.com", "api.example.org"])


@st.composite
def servers(draw):
    """Scheme, host, port and path of an address."""
    host = draw(hosts)
    here = host in {"localhost", "127.0.0.2"}
    scheme = draw(st.sampled_from(["http", "https"])) if here else "https"
    return scheme, host, draw(ports), tuple(draw(paths))


@st.composite
def spelled(draw, scheme, host, port, path):
    """A spelling of that address."""

    def cased(text):
        return draw(st.sampled_from([text, text.upper(), text.capitalize()]))

    host = cased(draw(st.sampled_from(HERE)) if host == "localhost" else host)
    default = {"http": 80, "https": 443}[scheme] == port
    written = draw(st.sampled_from(["", ":"])) if default and draw(st.booleans()) else f":{port}"
    said = "".join(f"/{segment}" for segment in path)
    return f"{cased(scheme)}://{host}{written}{said}{draw(st.sampled_from(['', '/']))}"


@given(st.data(), servers(), secrets)
def test_every_spelling_of_an_address_is_one_server(data, server, secret):
    one, other = (check_base_url(Location("p"), data.draw(spelled(*server))) for _ in range(2))
    assert server_of(one) == server_of(other)
    assert address_of(one) == address_of(other)
    assert key_identity(one, secret) == key_identity(other, secret)
    assert key_identity(one, "") == key_identity(other, "")


@given(st.data(), servers(), servers(), secrets, secrets)
def test_keys_are_the_same_if_secret_host_and_port_are(data, here, there, secret, other):
    one, two = (check_base_url(Location("p"), data.draw(spelled(*of))) for of in (here, there))
    same_server = here[1:3] == there[1:3]
    same = key_identity(one, secret) == key_identity(two, other)
    assert same == (same_server and secret == other)


@given(st.data(), servers(), servers())
def test_servers_without_a_secret_are_distinguished_by_their_full_address(data, here, there):
    one, two = (check_base_url(Location("p"), data.draw(spelled(*of))) for of in (here, there))
    assert (key_identity(one, "") == key_identity(two, "")) == (here == there)


def test_other_addresses_are_not_spellings_of_this_machine():
    hosts = ["localhost", "127.0.0.2", "[::2]", "localhost.localdomain", "[::ffff:127.0.0.1]"]
    urls = [f"http://{host}:8000/v1" for host in hosts]
    urls += ["http://localhost:8001/v1", "https://localhost/v1", "http://localhost/v1"]
    assert len({key_identity(url, CANARY) for url in urls}) == len(urls)
    assert key_identity("http://[0:0:0:0:0:0:0:1]:8000", CANARY) == key_identity(urls[0], CANARY)


def test_scheme_in_capitals_is_the_same_scheme():
    said = check_base_url(Location("p"), "HTTPS://api.example.com/V1/")
    assert said == "https://api.example.com/V1"
