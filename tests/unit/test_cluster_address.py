"""The URL of a cluster's server: valid and refused URLs, and no password in any message."""

import pytest
from redis._parsers.base import BaseParser

from pytest_ultrapar.cluster.address import read_address, server_facts
from pytest_ultrapar.cluster.server import NoAnswerError, meaning_of
from pytest_ultrapar.errors import ConfigError

CANARY = "s3cret-canary"


def of_environment(url):
    return read_address(None, {"ULTRAPAR_CLUSTER": url})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://127.0.0.1:7001/3", "redis://127.0.0.1:7001/3"),
        ("redis://[::1]:7001", "redis://[::1]:7001/0"),
        ("rediss://user:pw@db.example/1", "rediss://db.example:6379/1"),
        ("redis://db.example?trusted=yes", "redis://db.example:6379/0"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ],
)
def test_valid_urls_are_accepted(url, shown):
    assert of_environment(url).shown == shown


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:6379", "must begin with redis://"),
        ("redis://", "names no host"),
        ("redis://localhost:99999", "is not a URL"),
        ("redis://localhost/first", "a database number"),
        ("redis://localhost/" + "1" * 5000, "a database number"),
        ("redis://localhost?speed=1", "unknown parameter speed"),
        ("redis://localhost?trusted=maybe", "something other than yes or no"),
        ("redis://localhost?ca_file=x.pem", "only rediss://"),
        ("rediss://localhost?ca_file=/nowhere/x.pem", "does not exist"),
        ("unix://", "names no socket"),
    ],
)
def test_invalid_urls_are_refused(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        of_environment(url)
    assert "redis://[USER:PASSWORD@]HOST" in str(caught.value)


def test_password_on_the_command_line_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="every user of this machine can read") as caught:
        read_address(f"redis://user:{CANARY}@localhost", {})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("begin", ["123?", "12345#", "12/", "12345#x@", "a?", "a/", "?", "#"])
@pytest.mark.parametrize("host", ["db.example", "db.example:6379/0", "localhost"])
def test_no_refusal_shows_a_password_with_characters_that_end_a_host(begin, host):
    """The part before these characters reads like a host or port; the rest must not show."""
    with pytest.raises(ConfigError) as caught:
        of_environment(f"redis://:{begin}{CANARY}@{host}")
    assert CANARY not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        read_address(f"redis://:{begin}{CANARY}@{host}", {})
    assert CANARY not in str(caught.value)


def test_text_from_the_server_is_quoted_without_the_password():
    address = of_environment(f"redis://user:{CANARY}@localhost")
    said = (
        f"unknown command 'AUTH', with args beginning with: 'user' '{CANARY[:7]}",
        f"ERR what is\n{CANARY}\x1b[31m",
        f"ERR {CANARY.encode().hex()}",
    )
    assert [address.quoted(one) for one in said] == [
        "unknown command 'AUTH'",
        r"ERR what is ***\x1b[31m",
        "ERR ***",
    ]
    assert len(address.quoted("x" * 10_000)) == 200


def test_remote_server_without_a_password_is_refused_unless_trusted():
    with pytest.raises(ConfigError, match="has no password and is not on this machine"):
        of_environment("redis://10.0.0.5:6379")
    assert of_environment("redis://10.0.0.5:6379?trusted=yes").trusted


def test_keys_of_an_installation_share_one_hash_slot():
    assert of_environment("redis://localhost?prefix=lab").key_prefix == "{ultrapar:lab}:"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"redis_version": "6.0.16", "run_id": "x"}, "Redis 6.0.16; version 6.2 or later"),
        (
            {"redis_version": "7.2.4", "valkey_version": "7.0.0", "run_id": "x"},
            "Valkey 7.0.0; version 7.2 or later",
        ),
        ({"redis_version": "7.0.15"}, "run_id"),
        ({}, "is neither Redis nor Valkey"),
    ],
)
def test_unsupported_servers_are_refused(said, why):
    with pytest.raises(ConfigError, match=why):
        server_facts(said, {"aof_enabled": 1}, {})


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_server_that_may_evict_keys_is_refused(policy):
    said = {"redis_version": "7.2.4", "run_id": "x"}
    with pytest.raises(ConfigError, match=f"maxmemory-policy {policy}: .* policy to noeviction"):
        server_facts(said, {}, {"maxmemory": 10**9, "maxmemory_policy": policy})
    assert server_facts(said, {}, {"maxmemory": 0, "maxmemory_policy": policy})
    assert server_facts(said, {}, {"maxmemory": 10**9, "maxmemory_policy": "noeviction"})


@pytest.mark.parametrize(
    ("text", "means"),
    [
        *(
            (text, "does not accept commands at present: ")
            for text in (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "MISCONF Valkey is configured to save RDB snapshots",
                "READONLY You can't write against a read only replica.",
                "LOADING Valkey is loading the dataset in memory",
                "MASTERDOWN Link with MASTER is down and",
                "NOREPLICAS Not enough good replicas to write.",
                "BUSY Valkey is busy running a script.",
                "CLUSTERDOWN Hash slot not served",
            )
        ),
        (
            "MOVED 7 10.0.0.1:6379",
            "not serve the keys {ultrapar:default}:*: use the URL of the node",
        ),
        ("NOPERM User x has no permissions to run", "denies a required permission"),
        ("ACL failure in script: User x has no permissions", "denies a required permission"),
        ("TRYAGAIN Multiple keys request during rehashing", "does not answer"),
    ],
)
def test_error_of_a_server_becomes_a_sentence(text, means):
    of_call = BaseParser.parse_error(text)
    of_script = BaseParser.parse_error(
        f"ERR user_script:9: {text} script: 0a1b, on @user_script:9."
    )
    # The server raises the others before a script runs.
    in_scripts = text.startswith(("OOM", "MISCONF", "READONLY", "NOREPLICAS", "ACL"))
    for error in (of_call, of_script) if in_scripts else (of_call,):
        found = meaning_of(of_environment(f"redis://x:{CANARY}@localhost"), error)
        said = str(found)
        assert said.startswith("redis://localhost:6379/0 ")
        assert means in said
        assert ("does not answer" in said) is text.startswith("TRYAGAIN")
        is_passing = not text.startswith(("MOVED", "NOPERM", "ACL"))
        assert isinstance(found, NoAnswerError) is is_passing
        assert CANARY not in said
