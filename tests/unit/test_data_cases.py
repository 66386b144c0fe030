"""Cases from data files: their values, ids and marks, and refused files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cases

ROWS = [
    {"name": "sky", "word": "blue", "n": 1, "tags": ["slow", "skip"]},
    {"name": "sun", "word": "gelb", "n": 2, "tags": []},
]
JSONL = """{"name": "sky", "word": "blue", "n": 1, "tags": ["slow", "skip"]}

{"n": 2, "name": "sun", "word": "gelb", "tags": []}
"""
CSV = "\ufeffname,word,n,tags\r\nsky,blue,1,slow skip\r\nsun,gelb,2,\r\n"


@pytest.fixture
def data(tmp_path):
    """Write a file; return its path."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_row_is_a_dict_and_columns_are_picked_by_name(data):
    path = data("words.jsonl", JSONL)

    assert [one.values for one in cases(path)] == [(row,) for row in ROWS]
    assert [one.values for one in cases(path, "word")] == [("blue",), ("gelb",)]
    assert [one.values for one in cases(path, "n", "word")] == [(1, "blue"), (2, "gelb")]


def test_columns_give_ids_and_marks(data):
    for path in (data("words.jsonl", JSONL), data("words.csv", CSV)):
        found = cases(path, "word", id="name", marks="tags")

        assert [one.id for one in found] == ["sky", "sun"]
        assert [[mark.name for mark in one.marks] for one in found] == [["slow", "skip"], []]


def test_formats_give_the_same_cases(data, tmp_path):
    table = tmp_path / "words.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), table, row_group_size=1)
    files = (data("words.jsonl", JSONL), data("words.ndjson", "\ufeff" + JSONL), table)

    found = [cases(path, "word", "n", marks="tags") for path in files]

    assert found[0] == found[1] == found[2]
    # All values of a CSV file are texts.
    assert [one.values for one in cases(data("words.csv", CSV), "word", "n")] == [
        ("blue", "1"),
        ("gelb", "2"),
    ]


def test_id_is_a_hash_of_the_cases_values_and_not_of_its_place(data):
    here = [one.id for one in cases(data("words.jsonl", JSONL))]
    turned = "\n".join(reversed(JSONL.splitlines()))
    word = [one.id for one in cases(data("words.jsonl", JSONL), "word")]
    more = JSONL.replace("{", '{"note": "new", ')

    # These ids must not change, because earlier runs have them.
    assert here == ["56d553742d4d", "7ddb430aa122"]
    assert [one.id for one in cases(data("turned.jsonl", turned))] == here[::-1]
    assert [one.id for one in cases(data("more.jsonl", more), "word")] == word
    assert [one.id for one in cases(data("more.jsonl", more))] != here


def test_path_is_relative_to_the_file_that_calls(data, tmp_path):
    data("words.jsonl", JSONL)
    test = data("test_words.py", "from pytest_ultrapar import cases\nFOUND = cases('words.jsonl')")
    names: dict[str, object] = {}

    exec(compile(test.read_text(), str(test), "exec"), names)

    assert names["FOUND"] == cases(tmp_path / "words.jsonl")


TWICE = '{"id": "a", "w": 1}\n{"id": "b", "w": 1}\n'


@pytest.mark.parametrize(
    ("name", "text", "how", "said"),
    [
        ("none.jsonl", None, {}, ": No such file or directory"),
        ("words.txt", "", {}, ": cases() reads only .jsonl, .ndjson, .csv and .parquet"),
        ("empty.csv", "a,b\n", {}, ":1: there are no rows"),
        ("broken.jsonl", '{"a": 1}\n{"a": \n', {}, ":2: Input data was truncated"),
        ("list.jsonl", "\n[1]\n", {}, ":2: Expected `object`, got `array`"),
        ("deep.jsonl", '{"a": ' + "[" * 5_000, {}, ":1: maximum recursion depth"),
        # The rest is the reader's message, which differs between releases.
        ("latin.jsonl", b'{"a": "\xe4"}', {}, ":1: "),
        ("latin.csv", b"a\n1\n\xe4\n", {}, ":3: 'utf-8' codec can't decode byte 0xe4"),
        ("short.csv", "a,b\n1,2\n3\n", {}, ":3: has 1 field, but the first line names 2 columns"),
        ("twice.csv", "a,a\n1,2\n", {}, ":2: has 2 fields, but the first line names 1 column"),
        ("quote.csv", 'a,b\n1,2\n"3,4\n', {}, ":3: unexpected end of data"),
        ("none.parquet", "PAR", {}, ": Parquet file size is 3 bytes"),
        (
            "no.jsonl",
            '{"w": 1}',
            {"id": "name"},
            ":1: there is no column 'name'; the columns are w",
        ),
        (
            "c.csv",
            "\x1b[31m\n1\n",
            {"id": "w"},
            ":2: there is no column 'w'; the columns are \\x1b[31m",
        ),
        ("id.jsonl", '{"w": ""}', {"id": "w"}, ":1: the id (column 'w') is empty"),
        ("null.jsonl", '{"w": null}', {"id": "w"}, ":1: the id (column 'w') is empty"),
        (
            "ids.csv",
            "w\na\nb\na\n",
            {"id": "w"},
            ":4: this is the same case as line 2; both lines have the id 'a'",
        ),
        (
            "same.jsonl",
            '{"w": 1}\n{"w": 1}',
            {},
            ":2: this is the same case as line 1; give both an id",
        ),
        ("mark.jsonl", '{"w": "a b-c"}', {"marks": "w"}, ":1: marks must be names"),
        ("mark.jsonl", '{"w": "undeclared"}', {"marks": "w"}, ":1: 'undeclared' not found in"),
        ("mark.jsonl", '{"w": 3}', {"marks": "w"}, ":1: marks must be names such"),
        ("long.jsonl", f'{{"w": "{"-" * 9_000}"}}', {"marks": "w"}, ":1: marks must be names such"),
    ],
)
def test_error_in_a_file_is_one_sentence_with_file_and_line(data, name, text, how, said):
    path = data(name, text) if text is not None else Path("none.jsonl").absolute()

    with pytest.raises(pytest.Collector.CollectError) as refusal:
        cases(path, **how)

    [sentence] = refusal.value.args
    assert sentence.startswith(f"{path}{said}")
    assert "\n" not in sentence
    assert len(sentence) < 2_000


def test_columns_with_the_same_name_are_refused(tmp_path):
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.table([[1], [2], [3]], names=["w", "n", "w"]), path)
    for columns in ((), ("w",), ("n",)):
        with pytest.raises(pytest.Collector.CollectError) as refusal:
            cases(path, *columns)
        assert refusal.value.args == (
            f"{path}: two columns have the same name; the columns are w, n, w",
        )


def test_rows_that_differ_only_in_unused_columns_are_one_case(data):
    path = data("twice.jsonl", TWICE)

    with pytest.raises(
        pytest.Collector.CollectError, match="2: this is the same case as line 1; give both an id"
    ):
        cases(path, "w")

    assert [one.id for one in cases(path, "w", id="id")] == ["a", "b"]
