"""TLS and proxies in a pool file: refused settings, and the route to an address."""

from __future__ import annotations

import os

import pytest
import trustme
from cryptography.hazmat.primitives import serialization as pem

from pytest_ultrapar.broker.adaptive.server_load import watch_variables
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.network import DIRECT, Proxy, check_routes, route_secrets, route_to
from pytest_ultrapar.store.redact import Redactor
from tests.unit.pool_texts import API_URL, real, simulated

PASSWORD = "canary/1234"
PROXY_URL = "http://me:canary%2F1234@proxy.example.com:3128"
LOCAL = 'base_url = "http://localhost:8000/v1"'


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def loaded(text, **environ):
        folder = tmp_path / "pools"
        folder.mkdir(exist_ok=True)
        (folder / "pool.toml").write_text(text, encoding="utf-8")
        return load_pool("pools/pool.toml", environ=environ, overrides=Overrides())

    return loaded


@pytest.fixture(scope="module")
def leaf():
    return trustme.CA().issue_cert("someone@example.org")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (real('ca_file = ""'), "ca_file must be the path of a PEM file"),
        (real('client_key = "k.pem"'), "client_key requires client_cert"),
        (real('proxy = "http://p:1"\nproxy_env = "P"'), "proxy_env cannot be combined with proxy"),
        (real(f'proxy = "{PROXY_URL}"'), "proxy must not contain a user name or password"),
        (real('proxy = "socks5://p:1"'), "proxy must be a proxy's URL such as"),
        (real('proxy = "http://"'), "proxy must be a proxy's URL such as"),
        (real('proxy = "http://p:1/path"'), "proxy must be a proxy's URL such as"),
        (real('proxy = "http://p p:1"'), "proxy must be a proxy's URL such as"),
        (real('proxy = "http://p?x"'), "proxy must be a proxy's URL such as"),
        (real('proxy = "http://p:99999"'), "proxy must be a proxy's URL such as"),
        (real('proxy_env = "http://me:canary@p:1"'), "must be the name of an environment variable"),
        (real("trust_env = 1"), "trust_env must be true or false"),
        (real('ca_file = "ca.pem"', url=LOCAL), "ca_file applies only to https:// addresses"),
        (simulated("trust_env = true"), 'trust_env does not apply to api = "simulated"'),
    ],
)
def test_inconsistent_network_settings_are_refused(load, text, said):
    with pytest.raises(ConfigError) as refused:
        load(text)
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)


def files(folder, leaf):
    key = pem.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
    )
    contents = {
        "cert.pem": leaf.cert_chain_pems[0].bytes(),
        "key.pem": leaf.private_key_pem.bytes(),
        "locked.pem": locked,
        "other.pem": trustme.CA().issue_cert("other@example.org").private_key_pem.bytes(),
        "text.pem": b"no certificate",
        "both.pem": leaf.private_key_and_cert_chain_pem.bytes(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('ca_file = "gone.pem"', "ca_file names a file that cannot be read (No such file"),
        ('ca_file = "text.pem"', "ca_file names a file that contains no certificate in PEM format"),
        ('ca_file = "pipe"', "ca_file names a file that cannot be read (it is not a regular file)"),
        ('client_cert = "cert.pem"', "do not contain a certificate and its key"),
        (
            'client_cert = "cert.pem"\nclient_key = "other.pem"',
            "do not contain a certificate and its key",
        ),
        (
            'client_cert = "cert.pem"\nclient_key = "locked.pem"',
            "do not contain a certificate and its key",
        ),
        (
            'client_cert = "text.pem"\nclient_key = "key.pem"',
            "do not contain a certificate and its key",
        ),
        ("trust_env = true", "environment: SSL_CERT_FILE names a file that cannot be read"),
        ('proxy_env = "UNSET"', "names the environment variable UNSET, which is unset or empty"),
        ('proxy_env = "BAD"', "environment: BAD must be a proxy's URL"),
    ],
)
def test_unusable_file_or_variable_is_named(load, tmp_path, leaf, fields, said):
    environ = {"SSL_CERT_FILE": "/nowhere/ca.pem", "BAD": "ftp://me:canary@proxy:1"}
    pool = load(real(fields), **environ)
    files(tmp_path / "pools", leaf)
    with pytest.raises(ConfigError) as refused:
        check_routes(pool, environ)
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        'ca_file = "cert.pem"',
        'client_cert = "cert.pem"\nclient_key = "key.pem"',
        'client_cert = "both.pem"',
        'proxy = "http://proxy.example.com:3128"',
        "trust_env = true",
    ],
)
def test_paths_of_files_are_relative_to_the_pool_file(load, tmp_path, leaf, fields):
    pool = load(real(fields))
    files(tmp_path / "pools", leaf)
    check_routes(pool, {})


def route(pool, url=f"{API_URL}/chat", **environ):
    return route_to(pool.providers[0].network, url, environ, Location("pool.toml"))


def test_address_without_settings_is_reached_directly_despite_the_environment(load):
    assert route(load(real()), HTTPS_PROXY=PROXY_URL, SSL_CERT_FILE="/ca") == DIRECT


def test_pool_overrides_the_environment(load):
    pool = load(real('proxy = "http://mine:1"\nca_file = "/mine"\ntrust_env = true'))
    found = route(pool, HTTPS_PROXY=PROXY_URL, SSL_CERT_FILE="/ca", NO_PROXY="*")
    assert (found.proxy, found.trust.ca_file) == (Proxy("http://mine:1"), "/mine")


@pytest.mark.parametrize(
    ("exceptions", "is_direct"),
    [
        ("*", True),
        ("api.example.com", True),
        (".example.com", True),
        ("api.example.com:443", True),
        ("api.example.com:8443", False),
        ("ample.com", False),
    ],
)
def test_exceptions_of_the_environment_are_reached_directly(load, exceptions, is_direct):
    found = route(load(real("trust_env = true")), https_proxy="proxy:3128", NO_PROXY=exceptions)
    assert found.proxy == (None if is_direct else Proxy("http://proxy:3128"))


def test_unencrypted_requests_to_this_machine_never_use_a_proxy(load):
    instances = 'instances = [{ name = "i", base_url = "http://127.0.0.1:8000/v1" }]'
    pool = load(real('proxy = "http://proxy:1"', model=instances))
    assert route(pool, "http://127.0.0.1:8000/v1/chat/completions") == DIRECT


def test_password_of_a_proxy_is_a_secret_in_every_form(load):
    pool = load(real('proxy_env = "MY_PROXY"'), MY_PROXY=PROXY_URL)
    found = route(pool, MY_PROXY=PROXY_URL).proxy
    assert found is not None
    assert found.url == "http://proxy.example.com:3128"
    redactor = Redactor(route_secrets(pool, {"MY_PROXY": PROXY_URL}))
    for shown in (PROXY_URL, PASSWORD, f"me:{PASSWORD}", str(found.headers)):
        assert "canary" not in redactor.text(shown)
        assert "***" in redactor.text(shown)
    noted = {one.name: (one.value, one.origin) for one in pool.effective}
    assert noted["p proxy"] == ("http://proxy.example.com:3128", "environment MY_PROXY")
    assert noted["p proxy_env"] == ("MY_PROXY", "pool.toml")
    assert "canary" not in repr((pool, found))


def test_process_that_reads_metrics_gets_only_the_variables_of_its_route(load):
    fields = 'metrics_url = "https://api.example.com/metrics"\nproxy_env = "MY_PROXY"\n'
    assert watch_variables(load(real(fields))) == set()
    adaptive = load(real(f'{fields}rate_mode = "adaptive"'))
    assert watch_variables(adaptive) == {"MY_PROXY"}
