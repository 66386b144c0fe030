from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.model import EffectiveValue
from pytest_ultrapar.store.manifest import (
    Manifest,
    describe_machine,
    describe_python,
    describe_versions,
    read_manifest,
    resume_differences,
    write_manifest,
)
from tests.unit.finished_run import LANE

MANIFEST = Manifest(
    run_id="20300102T030405Z-abcdef",
    started_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
    pool_path="pool.toml",
    pool_digest="ab" * 32,
    models=("a", "b"),
    answered_by={"a": "x", "b": "x"},
    simulated=True,
    rate_mode="fixed",
    mode="ultra",
    policy="even",
    seed=7,
    repeats=3,
    n_planned=10,
    suite_digest="cd" * 32,
)


def test_manifest_is_read_as_written(tmp_path):
    manifest = msgspec.structs.replace(
        MANIFEST,
        arguments=("-k", "order", "-n4"),
        effective=(EffectiveValue("rate_mode", "fixed", "default"),),
        versions=describe_versions(),
        python=describe_python(),
        machine=describe_machine(),
        lanes=[LaneStatus("p/i/k", "out", "401 from the provider", 0, 3, 9, 5, 1, 3, {"k": 0.5})],
        measured_from=MANIFEST.started_at,
    )
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert (tmp_path / "manifest.json").stat().st_mode & 0o777 == 0o600
    assert {"pytest-ultrapar", "pyarrow", "pytest"} <= manifest.versions.keys()


def test_lanes_of_a_manifest_keep_their_old_field_names():
    written = {"rests": {"rate": 2}, "rested_s": {"rate": 1.5}, "found": None}
    lane = LaneStatus("p/i/k", "up", "", 0, 3, 9, 5, 1, 3, {})
    read = msgspec.convert({**msgspec.to_builtins(lane), **written}, LaneStatus)
    assert (read.pauses, read.paused_s, read.estimated) == ({"rate": 2}, {"rate": 1.5}, None)
    assert msgspec.to_builtins(read).items() >= written.items()


def test_missing_foreign_or_newer_manifest_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="cannot read"):
        read_manifest(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text('{"run_id": 1}')
    with pytest.raises(ResultsError, match="not a manifest of this version"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, msgspec.structs.replace(MANIFEST, schema=2))
    with pytest.raises(ResultsError, match="comes from a newer version: its schema is 2"):
        read_manifest(tmp_path)
    path.write_text('{"schema": 2, "run": "of which this version knows nothing"}')
    with pytest.raises(ResultsError, match="comes from a newer version: its schema is 2"):
        read_manifest(tmp_path)


def test_failed_write_leaves_the_earlier_manifest(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    (tmp_path / "taken").mkdir()
    with pytest.raises(ResultsError, match="cannot write"):
        write_manifest(tmp_path / "missing", MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST


def test_resume_may_change_settings_that_no_case_depends_on():
    new = msgspec.structs.replace(
        MANIFEST,
        pool_digest="00" * 32,
        rate_mode="adaptive",
        models=("b", "a"),
        policy="by-key",
    )
    assert resume_differences(MANIFEST, new) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 8}, "the run seed was 7 and is 8 now"),
        ({"models": ("a", "c")}, "(gone: b; new: c)"),
        ({"mode": "rotate"}, "the mode was ultra and is rotate now"),
        ({"storage_format": "json"}, "the format of tables was parquet and is json now"),
        ({"answered_by": {"a": "y"}}, "a's answers came from x and now come from y"),
        ({"simulated": False}, "the kind of answers was simulated and is real now"),
    ],
)
def test_resume_names_the_difference(change, sentence):
    (difference,) = resume_differences(MANIFEST, msgspec.structs.replace(MANIFEST, **change))
    assert sentence in difference


def test_resume_refuses_another_model_in_a_role():
    def with_judge(model):
        said = EffectiveValue("role judge model", model, "pool.toml")
        return msgspec.structs.replace(MANIFEST, effective=(said,))

    assert resume_differences(with_judge("a"), with_judge("a")) == []
    assert resume_differences(MANIFEST, with_judge("a")) == []
    assert resume_differences(with_judge("a"), with_judge("b")) == [
        "the model for role judge was a and is now b"
    ]


def test_resume_refuses_other_bounds_of_answers():
    def with_value(name, value):
        said = EffectiveValue(name, value, "pool.toml")
        return msgspec.structs.replace(MANIFEST, effective=(said,), pool_lanes=(LANE,))

    label = f"{LANE.provider}/{LANE.model}"
    before = msgspec.structs.replace(MANIFEST, pool_lanes=(LANE,))
    assert resume_differences(before, with_value(f"{label} max_tokens", 9)) == [
        f"the max_tokens of {label} was none and is 9 now"
    ]
    moved = [with_value(f"{label} address", one) for one in ("http://a:1/", "http://b:1/")]
    assert resume_differences(*moved) == []
