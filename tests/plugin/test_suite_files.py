"""The digests of a suite's files that a run stores, and their comparison."""

from __future__ import annotations

import hashlib

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import SUITE, cases


def test_run_stores_a_digest_of_each_file_of_its_suite(project):
    project.suite(SUITE + cases(1))
    project.pytester.path.joinpath("words.csv").write_text("word\nsun\n")
    assert project.run("-n0").ret == 0
    folder = project.pytester.path
    files = read_manifest(project.directory).files
    tests = {path.name for path in folder.glob("*.py")}
    assert files.keys() >= {"words.csv", *tests} > {"words.csv"}
    for name, digest in files.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
