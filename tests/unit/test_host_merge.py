"""The directories of the hosts of a run, among others on a disk."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from pytest_ultrapar.coordinator.host_merge import directories_of, manifests_of
from pytest_ultrapar.store.manifest import Merged, read_manifest
from tests.unit.finished_run import NOW, case, make_run


def test_hosts_of_the_run_are_separated_from_other_directories(tmp_path):
    run = make_run(tmp_path / "a", [case(0)], cluster_run="night", host="a", ended_at=NOW)
    own = read_manifest(run.path)

    def changed(**fields):
        return msgspec.structs.replace(own, **fields)

    before = NOW - timedelta(hours=2)
    beside = {
        "a": own,
        "b": changed(host="b"),
        "killed": changed(host="c", ended_at=None),
        "of last night": changed(host="d", started_at=before, ended_at=before),
        "killed last night": changed(host="e", started_at=before, ended_at=None),
        "another run": changed(cluster_run="day"),
        "another suite": changed(suite_digest="x"),
        "another seed": changed(seed=9),
        "another pool": changed(pool_digest="1" * 64),
        "a run of its own": changed(host=None, cluster_run=None),
        "merged": changed(merged=Merged(parts=())),
        "no run": None,
    }
    paths = {Path(name): manifest for name, manifest in beside.items()}
    found = directories_of(own, paths, NOW - timedelta(minutes=1))
    assert {host: str(path) for host, path in found} == {"a": "a", "b": "b", "c": "killed"}


def test_directory_with_a_link_to_it_is_one_host(tmp_path):
    run = make_run(tmp_path / "a", [case(0)], cluster_run="night", host="a")
    (tmp_path / "latest").symlink_to("a")
    (tmp_path / "empty").mkdir()
    found = manifests_of([run.path, tmp_path / "latest", tmp_path / "empty"])
    assert found == {run.path: read_manifest(run.path), tmp_path / "empty": None}
