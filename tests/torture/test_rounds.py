"""Two rounds of the torture program, run as a user runs them."""

from __future__ import annotations

import pytest

from tests.torture.__main__ import main

pytestmark = pytest.mark.slow

KINDS = ("running/controller", "compaction/compaction")


def test_rounds_hit_their_runs_and_find_no_violation(tmp_path, capsys):
    chosen = [word for kind in KINDS for word in ("--kind", kind)]
    code = main(["--rounds", "2", "--seed", "5", "--out", str(tmp_path / "rounds"), *chosen])
    output = capsys.readouterr().out
    assert code == 0, output
    totals = output.splitlines()[-1].split()
    assert totals[:2] == ["all", "2"]
    n_hits, n_resumed, n_violations = int(totals[2]), int(totals[4]), int(totals[5])
    assert n_hits >= 1
    assert n_resumed >= 1
    assert n_violations == 0
    assert not (tmp_path / "rounds").exists()
