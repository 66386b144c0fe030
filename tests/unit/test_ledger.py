"""The ledger of shares: the amounts of hosts over time."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.cluster.ledger import (
    EXPIRE_MS,
    Answer,
    Notice,
    Renewal,
    RowSpec,
    RowUse,
)
from tests.ledger_model import Ledger

SEATS = RowSpec(name="seats", kind="seats", amount=12, longest_ms=30_000)
PACED = RowSpec(name="qps", kind="paced", amount=2, window_ms=1_000)
MINUTE = RowSpec(name="tpm", kind="paced", amount=100_000, window_ms=60_000)
DAY = RowSpec(name="rpd", kind="counted", amount=500, window_ms=86_460_000)


class Crew:
    """Healthy hosts: each reports its grant, and returns units one call later."""

    def __init__(self, *rows: RowSpec, lanes=None, ledger: Ledger | None = None) -> None:
        self.rows = rows
        self.lanes = lanes or (tuple(range(len(rows))),)
        self.ledger = ledger or Ledger()
        self.now_ms = 1_000_000
        self.run_id = "one"
        self.hosts: dict[str, dict] = {}

    def host(self, name: str, *wants: int, run: str = "run", units=None, **more) -> dict:
        host = {
            "host": name,
            "incarnation": f"life of {name} {len(self.hosts)}",
            "run": run,
            "seq": 0,
            "wants": list(wants),
            "units": list(units or [1] * len(wants)),
            "held": [0] * len(wants),
            "spent": [0] * len(wants),
            "told": [0] * len(wants),
            "epoch": 0,
            "peers": 0,
            "answered": 0,
            **more,
        }
        self.hosts[name] = host
        return host

    def say(self, name: str, **more) -> Renewal:
        host = self.hosts[name]
        columns = (host[part] for part in ("held", "wants", "units", "spent", "told"))
        return Renewal(
            host=host["host"],
            incarnation=host["incarnation"],
            run=host["run"],
            seq=host["seq"],
            server_run_id=self.run_id,
            clock="one machine",
            clock_ms=self.now_ms,
            rows=host.get("rows", self.rows),
            uses=tuple(RowUse(*row) for row in zip(*columns, strict=True)),
            lanes=self.lanes,
            epoch=host["epoch"],
            peers=host["peers"],
            answered_ms=host["answered"],
            **{"fresh": True, **more},
        )

    def call(self, name: str, **more) -> Answer:
        host = self.hosts[name]
        host["seq"] += 1
        answer = self.ledger.renew(self.say(name, **more), self.now_ms)
        host["held"] = [share.grant for share in answer.shares]
        host["told"] = [share.told for share in answer.shares]
        host["epoch"], host["peers"], host["answered"] = answer.epoch, answer.peers, answer.now_ms
        return answer

    def rounds(self, count: int, *names: str) -> None:
        for _ in range(count):
            for name in names or tuple(self.hosts):
                self.now_ms += 1_000 // len(self.hosts)
                self.call(name)

    def held(self, row: int = 0) -> list[int]:
        return [host["held"][row] for host in self.hosts.values()]


def test_single_host_gets_all_that_it_wants_at_its_first_call():
    crew = Crew(SEATS)
    crew.host("a", 9)
    assert crew.call("a").shares[0].grant == 9


def test_new_host_gets_its_part_at_its_second_call_if_others_confirm_immediately():
    crew = Crew(SEATS)
    crew.host("a", 20)
    crew.rounds(3)
    crew.host("b", 20)
    crew.call("b")
    crew.now_ms += 500
    crew.call("a")
    crew.call("a")
    assert crew.call("b").shares[0].grant == 6


def test_units_that_a_host_does_not_want_go_to_other_hosts():
    crew = Crew(SEATS)
    for name, want in (("a", 2), ("b", 20), ("c", 20)):
        crew.host(name, want)
    crew.rounds(3)
    assert crew.held() == [2, 5, 5]


def test_small_row_and_the_rows_behind_it_go_to_one_host():
    """5 seats behind `qps = 2`: hosts with a part of this rate space their sends separately."""
    seats = msgspec.structs.replace(SEATS, amount=5)
    for count in (2, 3, 5):
        crew = Crew(seats, PACED)
        for at in range(count):
            crew.host(f"host{at}", 5, 5)
        crew.rounds(6)
        assert sorted(crew.held(0)) == [0] * (count - 1) + [5]
        assert sorted(crew.held(1)) == [0] * (count - 1) + [2]
        assert [bool(n) for n in crew.held(0)] == [bool(n) for n in crew.held(1)]


def test_small_rows_of_many_keys_are_spread_over_hosts():
    rows = tuple(msgspec.structs.replace(PACED, name=f"key{at}/qps") for at in range(20))
    crew = Crew(*rows, lanes=tuple((at,) for at in range(20)))
    for at in range(4):
        crew.host(f"host{at}", *[2] * 20)
    crew.rounds(4)
    keys = [sum(host["held"]) // 2 for host in crew.hosts.values()]
    assert sum(keys) == 20
    assert max(keys) < 12


def test_requests_larger_than_an_equal_part_are_sent():
    """Requests of 8,000 tokens, a limit of 100,000 a minute, 20 hosts: 12 have a share."""
    crew = Crew(SEATS, MINUTE)
    for at in range(20):
        crew.host(f"host{at}", 5, 50_000, units=(1, 8_000))
    crew.rounds(5)
    shares = [share for share in crew.held(1) if share]
    assert len(shares) == 12
    assert min(shares) >= 8_000
    assert sum(shares) == 100_000
    seats = [bool(n) for n in crew.held(0)]
    assert sum(crew.held(0)) == 12
    assert all(tokens for seat, tokens in zip(seats, crew.held(1), strict=True) if seat)


def test_host_keeps_no_units_that_a_narrower_row_makes_useless():
    pool = msgspec.structs.replace(PACED, name="pool/qps", amount=16)
    key = msgspec.structs.replace(PACED, name="key/qps", group="key")
    crew = Crew(pool, key)
    for at in range(3):
        crew.host(f"host{at}", 16, 2)
    crew.rounds(12)
    assert sorted(crew.held(0)) == [0, 0, 16]
    assert sorted(crew.held(1)) == [0, 0, 2]


def test_shares_do_not_move_for_a_few_per_cent():
    row = msgspec.structs.replace(MINUTE, amount=10_000)
    crew = Crew(row)
    for name in "abcd":
        crew.host(name, 3_000)
    crew.rounds(4)
    before = crew.held()
    crew.hosts["a"]["wants"] = [2_450]
    crew.rounds(4)
    assert crew.held()[0] == 2_450
    assert sum(abs(a - b) for a, b in zip(before, crew.held(), strict=True)) <= 100
    assert sum(crew.held()) == 10_000


def test_runs_have_equal_parts_regardless_of_their_number_of_hosts():
    crew = Crew(msgspec.structs.replace(SEATS, amount=40))
    crew.host("a", 40, run="small")
    for name in "bcd":
        crew.host(name, 40, run="large")
    crew.rounds(4)
    assert crew.held()[0] == 20
    assert sum(crew.held()[1:]) == 20


@pytest.mark.parametrize("run", ["run", "another"])
def test_idle_host_gets_its_part_when_it_wants_units_again(run):
    """Until then the other host has all units, on a wider and on a narrower row."""
    crew = Crew(SEATS, msgspec.structs.replace(PACED, amount=120))
    crew.host("a", 12, 120)
    crew.host("b", 0, 0, run=run)
    crew.rounds(20)
    assert crew.held() == [12, 0]
    crew.hosts["b"]["wants"] = [12, 120]
    crew.rounds(4)
    assert (crew.held(0), crew.held(1)) == ([6, 6], [60, 60])
    crew.hosts["b"]["wants"] = [0, 0]
    crew.rounds(20)
    assert crew.held() == [12, 0]
    crew.hosts["b"]["wants"] = [1, 10]
    crew.rounds(6)
    assert crew.held(0) == [11, 1]
    assert crew.held(1) == [110, 10]


def test_runs_take_turns_if_equal_parts_are_impossible():
    crew = Crew(msgspec.structs.replace(PACED, amount=1))
    crew.host("a", 1, run="one")
    crew.host("b", 1, run="two")
    had = [0, 0]
    for _ in range(400):
        crew.rounds(1)
        had = [a + b for a, b in zip(had, crew.held(), strict=True)]
    assert sum(had) ** 2 / (2 * sum(one**2 for one in had)) >= 0.95
    assert sum(had) > 0.9 * 400


def test_smallest_amount_holds_while_its_host_lives():
    crew = Crew(SEATS)
    crew.host("a", 20)
    crew.rounds(2)
    crew.host("b", 0, rows=(msgspec.structs.replace(SEATS, amount=7),))
    crew.rounds(2)
    assert crew.held() == [7, 0]
    assert crew.call("a").shares[0].amount == 7
    del crew.hosts["b"]
    crew.rounds(40)
    assert crew.held() == [12]


def test_another_server_grants_nothing_new_until_earlier_grants_are_over():
    crew = Crew(SEATS)
    crew.host("a", 4)
    crew.host("b", 8)
    crew.rounds(2)
    crew.ledger, crew.run_id = Ledger(), "two"
    begun_ms = crew.now_ms
    crew.hosts["a"]["wants"] = [12]
    while crew.held()[0] == 4:
        assert crew.now_ms - begun_ms <= 36_000
        crew.rounds(1, "a")
    assert crew.now_ms - begun_ms >= 35_000


def test_first_start_opens_after_expiry_or_immediately_for_an_operator():
    crew = Crew(SEATS)
    crew.host("a", 4)
    assert crew.call("a", fresh=False).shares[0].grant == 0
    crew.rounds(6)
    assert crew.held() == [4]
    assert crew.now_ms <= 1_000_000 + EXPIRE_MS + 1_000
    other = Crew(SEATS)
    other.host("a", 4)
    assert other.call("a").shares[0].grant == 4


def test_counted_units_are_known_again_when_all_hosts_have_reported():
    crew = Crew(DAY)
    for name in "ab":
        crew.host(name, 20)
    for _ in range(8):
        for name in "ab":
            host = crew.hosts[name]
            host["spent"] = [host["spent"][0] + host["held"][0]]
            host["held"] = [0]
            crew.now_ms += 500
            crew.call(name)
    before = crew.ledger.rows["rpd"]
    known = before.spent + before.out
    crew.ledger, crew.run_id = Ledger(), "two"
    crew.rounds(12, "a")
    assert crew.ledger.rows["rpd"].awaits
    crew.rounds(12)
    row = crew.ledger.rows["rpd"]
    assert not row.awaits
    assert known <= row.spent + row.out <= known + 50


def test_operator_opens_a_day_whose_hosts_are_gone():
    crew = Crew(DAY)
    for name in "ab":
        crew.host(name, 20)
    crew.rounds(3)
    crew.ledger, crew.run_id = Ledger(), "two"
    crew.rounds(12, "a")
    assert crew.ledger.rows["rpd"].awaits
    crew.host("operator", 0)
    crew.call("operator", leaving=True, open_days=True)
    assert not crew.ledger.rows["rpd"].awaits


def test_unknown_units_after_a_second_loss_are_not_counted_as_spent():
    crew = Crew(DAY)
    for name in "ab":
        crew.host(name, 20)
    crew.rounds(3)
    for run_id in ("two", "three", "four"):
        crew.ledger, crew.run_id = Ledger(), run_id
        crew.rounds(12, "a")
        # All live hosts have reported, but not all had at the last answer.
        assert crew.ledger.rows["rpd"].awaits
        answer = crew.call("a")
        assert answer.shares[0].closed
        assert answer.shares[0].spent <= 40
    crew.host("operator", 0)
    crew.call("operator", leaving=True, open_days=True)
    crew.rounds(3, "a")
    row = crew.ledger.rows["rpd"]
    assert not row.awaits
    assert 20 <= row.spent + row.out <= 60
    assert crew.held()[0] == 20
    # From now on all units are known.
    crew.ledger, crew.run_id = Ledger(), "five"
    crew.rounds(20, "a")
    assert not crew.ledger.rows["rpd"].awaits


def test_news_reach_all_other_hosts_once():
    crew = Crew(SEATS)
    crew.host("a", 1)
    crew.host("b", 1, run="other")
    crew.rounds(1)
    mine = Notice("key7", "paused", 60_000, "run")
    crew.call("a", news=(Notice("key3", "401"), mine))
    answer = crew.call("b")
    assert answer.news == (Notice("key3", "401"),)
    assert crew.call("b", news_seen=answer.news_seen).news == ()
    crew.now_ms += 1_000
    heard = crew.call("a").news
    assert heard == (Notice("key3", "401"), Notice("key7", "paused", 59_000, "run"))


def test_host_that_leaves_frees_all_units_immediately():
    crew = Crew(SEATS)
    crew.host("a", 12)
    crew.call("a")
    crew.hosts["a"]["held"] = [0]
    crew.call("a", leaving=True)
    crew.now_ms += 300
    crew.host("b", 12)
    assert crew.call("b").shares[0].grant == 12


def test_host_that_leaves_reports_the_units_that_it_spent_last():
    crew = Crew(DAY)
    crew.host("a", 20)
    crew.call("a")
    crew.hosts["a"].update(held=[0], wants=[0], spent=[20])
    crew.call("a", leaving=True)
    assert crew.ledger.rows["rpd"].spent == 20
