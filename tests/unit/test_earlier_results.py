"""An earlier run as an estimate: the rows that count, read in a separate process."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.earlier_results import earlier, earlier_in_subprocess
from pytest_ultrapar.errors import ResultsError
from tests.unit.finished_run import attempt, episode, run_of_one, run_of_seven


@pytest.fixture
def seven(tmp_path):
    run = run_of_seven(tmp_path / "out")
    compact(run.path)
    return run


def test_graded_episodes_count_with_their_answered_requests(seven):
    found = {one.case_id: one for one in earlier(seven.path).episodes}
    # Without the episode that ended in an error (4) and the request refused for its rate (in 1).
    assert set(found) == {"case0", "case1", "case2", "case3"}
    assert found["case1"].services_s == (3.0,)
    assert (found["case0"].suite, found["case0"].model) == ("phase53", "m1")
    assert (found["case0"].services_s, found["case0"].tokens_in) == ((2.0,), 10)
    assert found["case1"].tokens_in is None


def test_client_times_are_medians_over_all_requests(tmp_path):
    turns = [attempt(1.0, 2.0), attempt(2.5, 3.0), attempt(3.1, 4.0), attempt(4.2, 5.0)]
    run = run_of_one(tmp_path / "out", episode(0, 1.0, 5.0, attempts=turns))
    compact(run.path)
    assert earlier(run.path).between_s == pytest.approx(0.2)
    assert earlier(run.path).before_send_s == 0.0


def test_run_of_single_requests_has_no_time_between_requests(tmp_path):
    run = run_of_one(tmp_path / "out", episode(0, 1.0, 2.0))
    compact(run.path)
    assert earlier(run.path).between_s is None


def test_run_with_json_tables_gives_the_same_estimate(seven, tmp_path):
    run = run_of_seven(tmp_path / "other", storage_format="json")
    compact(run.path)
    assert not (run.path / "results.parquet").exists()
    assert earlier(run.path) == earlier(seven.path)


@pytest.mark.slow
def test_separate_process_reads_the_same_estimate(seven):
    assert earlier_in_subprocess(seven.path) == earlier(seven.path)


@pytest.mark.slow
def test_run_with_missing_or_damaged_tables_is_refused(seven):
    (seven.path / "attempts.parquet").write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(ResultsError, match="cannot read the attempts of "):
        earlier_in_subprocess(seven.path)
    (seven.path / "attempts.parquet").unlink()
    with pytest.raises(ResultsError, match="has no attempts: the run has not ended"):
        earlier_in_subprocess(seven.path)
