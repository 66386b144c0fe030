from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.faults.kinds import (
    KINDS,
    KNOWN_ERRORS,
    Drop,
    FaultTable,
    Hang,
    Malformed,
    PlaceTable,
)
from pytest_ultrapar.simulator.faults.script import Fault, FaultScript, When
from pytest_ultrapar.simulator.faults.timeline import Span, Where
from pytest_ultrapar.simulator.wire.chat import Chat
from tests.simulated_pool import faults_of, simulated_pool

POOL = simulated_pool(
    models={"m": ("i0", "i1"), "n": ("i2",)},
    keys=("key0", "key1"),
    per_key=Limit("", "key", workers=5, qps=10),
)


def entry(kind, *lines):
    """The text of a file with one fault."""
    return "\n".join([f'[[fault]]\nkind = "{kind}"', *lines])


@pytest.fixture
def load(tmp_path):
    return lambda text: faults_of(POOL, tmp_path, text)


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        (entry("hang"), Hang("start")),
        (entry("hang", 'at = "body"'), Hang("body")),
        (entry("drop"), Drop("start", None)),
        (entry("drop", "after_s = 2", 'at = "body"'), Drop("body", 2.0)),
        (entry("malformed"), Malformed()),
        (entry("malformed", r'body = "\u0000"'), Malformed("\0")),
    ],
)
def test_fault_of_each_kind_is_read(load, text, effect):
    (fault,) = load(text).faults
    assert fault.effect == effect
    assert fault.label == f"{text.split(chr(34))[1]} 1"


@pytest.mark.parametrize("name", KNOWN_ERRORS)
def test_known_error_is_answered_in_the_form_of_the_api(load, name):
    (fault,) = load(entry("error", f'error = "{name}"')).faults
    answer = fault.effect.answer(Chat())
    known = KNOWN_ERRORS[name]
    assert answer.status == known.status
    document = msgspec.json.decode(answer.body)["error"]
    assert (document["code"], document["message"]) == (known.code, known.message)
    assert (b"retry-after" in dict(answer.headers)) == (known.retry_after_s is not None)


def test_status_body_and_headers_of_an_error_come_from_the_file(load):
    text = entry("error", "status = 502", 'body = "<html>"', 'headers = { A = ["1", "2"] }')
    (fault,) = load(text).faults
    assert fault.effect.answer(Chat()) == Whole(b"<html>", 502, ((b"a", b"1"), (b"a", b"2")))
    (later,) = load(entry("error", "status = 503", 'body = ""', "after_s = 1")).faults
    assert later.effect.of_answer(Whole(b"x"), 5.0, Chat()) == (Whole(b"", 503), 1.0)


def test_status_and_message_of_a_known_error_can_be_overridden(load):
    text = entry("error", 'error = "overloaded"', "status = 529", 'message = "busy"')
    (fault,) = load(text).faults
    answer = fault.effect.answer(Chat())
    assert answer.status == 529
    assert msgspec.json.decode(answer.body)["error"]["message"] == "busy"


def test_given_headers_replace_the_default_headers(load):
    (usual,) = load(entry("error", "status = 429")).faults
    (none,) = load(entry("error", "status = 429", "headers = {}")).faults
    assert dict(usual.effect.answer(Chat()).headers)[b"retry-after"] == b"1"
    assert none.effect.answer(Chat()).headers == ()


def test_place_and_time_of_a_fault_are_read(load):
    text = """
    since = "start"
    seed = 7
    [[fault]]
    name = "storm"
    kind = "error"
    status = 500
    provider = "lab"
    instance = "i0"
    key = "key1"
    model = "m"
    from_s = 1.5
    for_s = 10
    after_requests = 3
    for_requests = 4
    share = 0.5
    """
    script = load(text)
    assert (script.since, script.seed, len(script.digest)) == ("start", 7, 64)
    (fault,) = script.faults
    assert fault.label == "storm"
    assert fault.where == Where("lab", "i0", "key1", "m")
    assert fault.when == When(Span(1.5, 10.0), 3, 4, 0.5)


def test_capacity_of_limits_by_pattern_and_of_lanes_is_read(load):
    first, second = load(
        """
        [[capacity]]
        limit = "lab/*"
        from_s = 5
        factor = 0.5
        [[capacity]]
        instance = "i2"
        qps = 2
        """
    ).capacities
    assert first.limits == ("lab/key0", "lab/key1")
    assert (first.span, first.factor) == (Span(5.0), 0.5)
    assert (second.limits, second.where) == ((), Where(instance="i2"))
    assert (second.amounts, second.label) == ({"qps": 2}, "capacity 2")


def test_script_survives_the_pipe(load):
    script = load(
        "\n".join(
            [
                entry("hang", "share = 0.5"),
                entry("error", "status = 500"),
                entry("drop"),
                entry("malformed"),
                '[[capacity]]\nlimit = "lab/key0"\nworkers = 2',
            ]
        )
    )
    assert msgspec.json.decode(msgspec.json.encode(script), type=FaultScript) == script


def test_faults_can_be_put_before_the_others(load):
    script = load(entry("hang"))
    first = Fault("f", Where(), When(), Hang("start"))
    assert script.preceded_by([first]).faults == (first, *script.faults)
    assert script.preceded_by([]) == script


def test_every_field_of_a_fault_belongs_to_a_kind_or_to_all():
    own = set(FaultTable.__struct_fields__) - set(PlaceTable.__struct_fields__)
    when = {"kind", "after_requests", "for_requests", "share"}
    assert {field for kind in KINDS.values() for field in kind.fields} == own - when


REFUSED = [
    ("", "is empty"),
    (entry("eror", "status = 500"), 'fault[0].kind must be "error" or "hang"'),
    (entry("hang", "form_s = 1"), "fault[0].form_s is not a known field; did you mean for"),
    (entry("hang", "body = ''"), 'fault[0].body requires kind = "error" or "malformed"'),
    (entry("error"), "fault[0] requires error or status"),
    (entry("error", "status = 200"), "fault[0].status must be >= 300 (got 200)"),
    (entry("error", "error = 'insufficient_qouta'"), "did you mean insufficient_quota?"),
    (entry("error", "status = 500", "headers = { 'a b' = '' }"), "is not a header name"),
    (entry("error", "status = 500", "headers = { a = 2 }"), "fault[0].headers.a must be a string"),
    (entry("error", "status = 500", "headers = { Content-Length = '1' }"), "cannot be set"),
    (entry("error", "status = 500", r'headers = { a = "b\r\nc" }'), "must be one line"),
    (entry("slow"), 'fault[0].kind must be "error" or "hang"'),
    (
        entry("hang", "key = 'key00'"),
        "fault[0].key is an unknown key in pool.toml; did you mean key0?",
    ),
    (entry("hang", "instance = 'zz'"), "allowed: i0, i1, i2"),
    (entry("hang", "model = 'n'", "instance = 'i0'"), "fault[0] matches no lane in pool.toml"),
    (entry("hang", "share = 0"), "fault[0].share must be > 0 (got 0)"),
    (entry("hang", "for_s = 0"), "fault[0].for_s must be > 0 (got 0)"),
    (entry("hang", "for_requests = 0"), "fault[0].for_requests must be >= 1 (got 0)"),
    ("since = 'now'\n" + entry("hang"), 'since must be "first-request" or "start" (got "now")'),
    ("[[capacity]]\nlimit = 'lab/key0'", "capacity[0] has no effect"),
    ("[[capacity]]\nlimit = 'lab/key7'\nworkers = 1", "did you mean lab/key"),
    ("[[capacity]]\nlimit = 'lab/key0'\nkey = 'key0'\nqps = 1", "cannot be combined with limit"),
    ("[[fault]\n", "line 1 is not valid TOML"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_mistake_is_refused_with_one_clear_message(load, text, message):
    with pytest.raises(ConfigError) as refusal:
        load(text)
    said = str(refusal.value)
    assert message in said
    assert "faults.toml" in said
    assert "\n" not in said


def test_missing_file_is_refused(tmp_path):
    from pytest_ultrapar.simulator.faults.file import load_faults

    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file"):
        load_faults(tmp_path / "none.toml", POOL)
