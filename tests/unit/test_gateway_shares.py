"""A gateway's demand for shared limits: waiting requests and recent use."""

from __future__ import annotations

import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.cluster.gateway_shares import LATELY_S, RecentUse, Traffic

POOL = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{{ name = "key0" }}]
per_key = {{ workers = 5{more} }}
[[provider.model]]
name = "m"
"""


def test_waiting_requests_count_immediately():
    lately = RecentUse({})
    lately.note(10.0, {"m": 3}, {"m": Traffic(0, 0.0)})
    assert lately.most("m") == 3
    assert lately.most("other") == 0


def test_short_requests_between_renewals_count_by_their_average():
    lately = RecentUse({})
    lately.note(10.0, {}, {"m": Traffic(5, 2.0), "n": Traffic(0, 0.0)})
    lately.note(11.0, {}, {"m": Traffic(45, 5.6), "n": Traffic(1, 0.01)})
    assert (lately.most("m"), lately.most("n")) == (4, 1)


def test_demand_that_has_ended_expires():
    lately = RecentUse({})
    went = {"m": Traffic(0, 0.0)}
    lately.note(10.0, {"m": 3}, went)
    lately.note(10.0 + LATELY_S - 0.1, {}, went)
    assert lately.most("m") == 3
    lately.note(10.0 + LATELY_S + 0.1, {}, went)
    assert lately.most("m") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cluster"], "set the environment variable ULTRAPAR_CLUSTER, or pass --cluster URL"),
        (["--cluster", "nowhere"], "--cluster must begin with redis://"),
        (["--cluster", "redis://:secret@db"], "--cluster contains a password"),
        (["--cluster", "redis://127.0.0.1:1"], "redis://127.0.0.1:1/0 does not answer"),
        (["--cluster-run", "a b"], "--cluster-run must be 1 to 100 letters"),
    ],
)
def test_invalid_cluster_option_is_one_sentence_and_leaves_no_file(
    tmp_path, monkeypatch, capsys, options, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ULTRAPAR_CLUSTER", raising=False)
    (tmp_path / "pool.toml").write_text(POOL.format(more=""), "utf-8")
    assert main(["gateway", "--pool", "pool.toml", "--port", "0", *options]) == 4
    assert said in capsys.readouterr().err
    assert not (tmp_path / ".ultrapar").exists()
