"""The digests that a run stores of its suite's files."""

from __future__ import annotations

import hashlib

from pytest_ultrapar.store import manifest
from pytest_ultrapar.store.manifest import describe_files


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_next_to_tests_and_conftests_above_have_a_digest(tmp_path):
    wanted = ("conftest.py", "evals/test_a.py", "evals/conftest.py", "evals/data/words.jsonl")
    others = ("setup.py", "evals/a.pyc", "evals/.venv/b.py", "evals/a/b/c.py", "other/test_b.py")
    for name in (*wanted, *others, "evals/__pycache__/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = describe_files(tmp_path, ["evals/test_a.py::test[x::y]", "evals/test_a.py::test[z]"])
    assert found == {name: digest(name) for name in wanted}


def test_unreadable_and_large_files_have_no_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "_MOST_BYTES", 4)
    (tmp_path / "test_a.py").write_text("four")
    (tmp_path / "large.txt").write_text("fives")
    (tmp_path / "zero.txt").write_text("more")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / "folder.json").mkdir()
    assert describe_files(tmp_path, ["test_a.py::test", "not/there.py::test"]) == {
        "test_a.py": digest("four")
    }


def test_undecodable_name_is_stored_escaped(tmp_path):
    (tmp_path / "test_a.py").write_text("a")
    (tmp_path / "\udcff.py").write_text("b")
    assert describe_files(tmp_path, ["test_a.py::test"]) == {
        "test_a.py": digest("a"), "\\udcff.py": digest("b"),
    }  # fmt: skip


def test_directories_of_runs_are_not_part_of_a_suite(tmp_path):
    (tmp_path / "test_a.py").write_text("a")
    for name in ("data/manifest.json", "run/manifest.json", "run/cases.json", "run/run.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = describe_files(tmp_path, ["test_a.py::test"])
    assert found.keys() == {"test_a.py", "data/manifest.json"}
