"""Two workers collected different tests: one sentence names the parameter and both values."""

from __future__ import annotations

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.records import Case
from pytest_ultrapar.session import worker_test_lists
from pytest_ultrapar.session.worker_test_lists import check_same_tests


def case(name: str, content=None, test="test_it", **params):
    nodeid = f"t.py::{test}[{name}]"
    return Case(0, name, nodeid, "t", "m", 0, params, 7, content=content or {})


def refusal(one, other) -> str:
    with pytest.raises(ConfigError) as caught:
        check_same_tests(one, other)
    said = str(caught.value)
    assert said.startswith("the tests are not the same in all worker processes: ")
    assert said.endswith("in the same order: sort sets, and use no random values")
    assert "\n" not in said
    return said


def test_values_in_another_order_are_named_with_their_parameter():
    a, b = (case(word, prompt=word, n=1) for word in "ab")
    said = refusal([a, b], [b, a])
    assert (
        "parameter 'prompt' is 'a' for t.py::test_it[a] in one process, 'b' for t.py::test_it[b] "
        in said
    )


def test_random_values_are_named():
    said = refusal([case("0.1", p=0.1)], [case("0.7", p=0.7)])
    assert "parameter 'p' is 0.1 for t.py::test_it[0.1] in one process, 0.7 for t.py" in said


def test_ids_with_addresses_are_shown_with_their_parameter():
    one, other = (case(f"<K at {at}>", {"k": "aa"}, k="K") for at in ("0x1", "0x2"))
    said = refusal([one], [other])
    assert (
        "parameter 'k' is 'K' (content aa) for t.py::test_it[<K at 0x1>] in one process, " in said
    )
    assert "t.py::test_it[<K at 0x2>] in another" in said


def test_swapped_objects_under_the_same_ids_are_found():
    one = [case("k0", {"k": "aa"}, k="K"), case("k1", {"k": "bb"}, k="K")]
    other = [case("k0", {"k": "bb"}, k="K"), case("k1", {"k": "aa"}, k="K")]
    said = refusal(one, other)
    assert "'K' (content aa) for t.py::test_it[k0] in one process, 'K' (content bb) for " in said


@pytest.mark.parametrize(
    "other",
    [
        [case("k0", {"k": "cc"}, k="K", t=2), case("k1", {"k": "dd"}, k="K", t=2)],
        [case("k0", {"k": "aa"}, k="K", t=1), case("k1", {"k": "aa"}, k="K", t=1)],
    ],
    ids=["other values", "no difference"],
)
def test_ids_decide_if_no_object_was_swapped(other):
    one = [case("k0", {"k": "aa"}, k="K", t=1), case("k1", {"k": "aa"}, k="K", t=1)]
    check_same_tests(one, other)


def test_tests_of_only_one_worker_are_found_after_collection():
    a, b, c = case("a", p=1), case("b", p=2), case("a", p=1, test="test_more")
    check_same_tests([a], [a, b])
    check_same_tests([a, b], [a, c])
    ids = [one.nodeid for one in (a, b)]
    assert worker_test_lists.tests_differ(ids, ids) is None
    said = worker_test_lists.tests_differ(ids, [a.nodeid])
    assert "one process collected t.py::test_it[b], another no test; " in said
    said = worker_test_lists.tests_differ(ids, [a.nodeid, "t.py::test_" + "x" * 900])
    assert len(said) < 600
