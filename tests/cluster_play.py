"""Whole runs of several hosts in virtual time: the loss against one host, without a machine.

Brokers, the ledger, the claims and the calls of a host are the product's. The network between them
takes a fixed time, and the provider answers at a time drawn by a seed. It never refuses: the judge
counts the requests that it saw. `python -m tests.cluster_play` prints the makespans of runs of one,
two, three and more hosts, as ratios to one host without a cluster.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.headroom import settled_late_s
from pytest_ultrapar.broker.shares import Row
from pytest_ultrapar.cluster.claim_protocol import ClaimCall, Claimed, JoinCall
from pytest_ultrapar.cluster.claim_thread import LOOK_S, ClaimSize, lanes_in_common
from pytest_ultrapar.cluster.host_shares import RENEW_S, SOON_S
from pytest_ultrapar.cluster.ledger import STOP_MS, Renewal, RowUse
from pytest_ultrapar.cluster.ledger_rows import shared_rows
from pytest_ultrapar.cluster.run_identity import CaseLine
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.claim_book import ClaimBook
from tests.ledger_model import Ledger
from tests.pools import lane, pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Pool

ROUND_TRIP_S = 0.004
"""Seconds of a call of the server."""
REPORTED_S = 0.05
"""Seconds from the end of an episode to the report of its case."""


class Suite:
    """Cases of a run: a model for each, and the seconds of each of its answers, by a seed."""

    def __init__(self, models: Sequence[str], n_cases: int, seed: int, **kind: object) -> None:
        """Draw the answers.

        Args:
            models: The models, which the cases use in turn.
            n_cases: The number of cases.
            seed: The seed of the draws.
            kind: `turns` (least, most), `median_s`, `sigma`, `tokens` of each request.
        """
        draw = random.Random(seed)
        least, most = kind.get("turns", (4, 10))
        median_s, sigma = kind.get("median_s", 0.15), kind.get("sigma", 0.4)
        self.models = tuple(models)
        self.tokens = kind.get("tokens", 0)
        self.model_of = [models[n * len(models) // n_cases] for n in range(n_cases)]
        self.answers_s = [
            [
                median_s * math.exp(sigma * draw.gauss(0, 1))
                for _ in range(draw.randint(least, most))
            ]
            for _ in range(n_cases)
        ]
        firsts = [self.model_of.index(model) for model in models]
        self.ranges = tuple(zip(firsts, [*firsts[1:], n_cases], strict=True))


class Provider:
    """The provider's view: the start and end of each request, by key."""

    def __init__(self) -> None:
        self.began_s: dict[str, list[float]] = {}
        self.ended_s: dict[str, list[float]] = {}

    def most_in(self, key: str, window_s: float) -> int:
        """The most requests that began in any window."""
        times = sorted(self.began_s[key])
        most = first = 0
        for last, at_s in enumerate(times):
            while times[first] <= at_s - window_s:
                first += 1
            most = max(most, last - first + 1)
        return most

    def most_in_flight(self, key: str) -> int:
        """The most requests in flight at the same time."""
        steps = sorted(
            [(at_s, 1) for at_s in self.began_s[key]] + [(at_s, -1) for at_s in self.ended_s[key]],
        )
        now = most = 0
        for _, step in steps:
            now += step
            most = max(most, now)
        return most

    @property
    def makespan_s(self) -> float:
        """Seconds from the first request to the last answer."""
        firsts = (min(times) for times in self.began_s.values())
        return max(max(times) for times in self.ended_s.values()) - min(firsts)


class HostPlay:
    """A host: its broker, its calls of the server, and cases that proceed by themselves."""

    def __init__(self, run: RunPlay, name: str, *, shared: bool) -> None:
        self.run, self.name = run, name
        self.play = Play(
            run.pool,
            now_s=0.0,
            late_s=settled_late_s,
            **({"shared": [Row(*one) for one in run.rows.limits]} if shared else {}),
        )
        self.play.on_grant = self._granted
        self._case_of: dict[int, tuple[int, int]] = {}
        self.done: list[int] = []
        self.claimed = [0] * len(run.suite.models)
        self._seq = self._epoch = self._peers = self._answered_ms = self._claim_seq = 0
        lines = [CaseLine(model) for model in run.suite.models]
        self._claim_size = ClaimSize(lanes_in_common(lines, run.pool.lanes))
        self._joined: Claimed | None = None
        self._unclaimed = dict(zip(run.suite.models, run.suite_sizes(), strict=True))
        self.shares_s: list[tuple[float, tuple[int, ...]]] = []

    # -- cases -------------------------------------------------------------------------------------

    def ask(self, case: int, turn: int) -> None:
        suite = self.run.suite
        self._case_of_next = (case, turn)
        number = self.play.ask(
            model=suite.model_of[case], case_id=str(case), opens=turn == 0, tokens=suite.tokens
        )
        self._case_of.setdefault(number, (case, turn))

    def _granted(self, request_id: int) -> None:
        case, turn = self._case_of.setdefault(request_id, self._case_of_next)
        play, answers_s = self.play, self.run.suite.answers_s[case]
        key = play.granted[request_id].lane.rpartition("/")[2]
        self.run.provider.began_s.setdefault(key, []).append(play.now_s)

        def answered() -> None:
            self.run.provider.ended_s.setdefault(key, []).append(play.now_s)
            play.back(request_id)
            if turn + 1 < len(answers_s):
                self.ask(case, turn + 1)
            else:
                play.end(str(case))
                play.later(REPORTED_S, self.done.append, case)

        play.later(answers_s[turn], answered)

    # -- the server --------------------------------------------------------------------------------

    def renew(self) -> None:
        run, play = self.run, self.play
        begun_s, self._seq = play.now_s, self._seq + 1
        held = play.broker.holdings(play.now_s)
        wants = play.broker.wants(play.now_s, self._unclaimed).rows
        uses = [
            RowUse(held=held[row].units, want=wants[row].units, unit=wants[row].unit)
            for row in (Row(*name) for name in run.rows.limits)
        ]
        call = Renewal(
            host=self.name,
            incarnation=self.name,
            seq=self._seq,
            run=run.name,
            server_run_id="",
            epoch=self._epoch,
            clock=self.name,
            clock_ms=round(play.now_s * 1000),
            rows=run.rows.specs,
            uses=tuple(uses),
            lanes=run.rows.lanes,
            answered_ms=self._answered_ms,
            peers=self._peers,
        )

        def served() -> None:
            answer = run.ledger.renew(call, round(play.now_s * 1000))

            def heard() -> None:
                self._epoch, self._peers = answer.epoch, answer.peers
                self._answered_ms = answer.now_ms
                grants = [share.grant for share in answer.shares]
                shares = dict(zip(run.rows.limits, grants, strict=True))
                until_s = begun_s + STOP_MS / 1000
                play.book(play.broker.share(shares, until_s, play.now_s))
                self.shares_s.append((play.now_s, tuple(grants)))
                moves = any(
                    share.target > share.grant or use.held > share.grant
                    for share, use in zip(answer.shares, call.uses, strict=True)
                )
                pause_s = SOON_S if moves else RENEW_S
                play.later(max(0.0, begun_s + pause_s - play.now_s), self.renew)

            play.later(ROUND_TRIP_S / 2, heard)

        play.later(ROUND_TRIP_S / 2, served)

    def look(self) -> None:
        run, play = self.run, self.play
        if self._joined is None:
            joined = run.claims.call(
                JoinCall(
                    name=self.name,
                    life=self.name,
                    identity="",
                    lines=list(run.suite.ranges),
                ),
                round(play.now_s * 1000),
            )
            assert isinstance(joined, Claimed)
            self._joined = joined
        status = play.broker.status(play.now_s)
        room = status.room or {}
        begun = Counter(
            {one.model: sum(one.open.values()) + sum(one.ended.values()) for one in status.models}
        )
        models = run.suite.models
        wants = self._claim_size.wants(
            self.claimed,
            [begun[model] for model in models],
            self._joined.unclaimed,
            [room[model] for model in models],
        )
        self._claim_seq += 1
        done = self.done.copy()
        self.done.clear()
        said = run.claims.call(
            ClaimCall(
                host=self._joined.host,
                life=self.name,
                seq=self._claim_seq,
                done=done,
                open=status.open_episodes,
                wants=wants,
            ),
            round(play.now_s * 1000),
        )
        assert isinstance(said, Claimed)
        self._joined = said
        self._unclaimed = dict(zip(models, said.claimable, strict=True))
        for case in said.given:
            self.claimed[models.index(run.suite.model_of[case])] += 1
            self.ask(case, 0)
        if said.n_done < len(run.suite.answers_s):
            play.later(LOOK_S, self.look)
        else:
            run.is_over = True


class RunPlay:
    """A run of several hosts, or of one without a cluster."""

    def __init__(
        self, what: Pool, suite: Suite, *, name: str = "run", ledger: Ledger | None = None
    ) -> None:
        self.pool, self.suite, self.name = what, suite, name
        self.rows = shared_rows(
            what, what.lanes, {one.lane_id: one.key_name for one in what.lanes}, name
        )
        self.ledger = ledger or Ledger()
        self.claims = ClaimBook()
        self.provider = Provider()
        self.hosts: list[HostPlay] = []
        self.is_over = False

    def suite_sizes(self) -> list[int]:
        return [last - first for first, last in self.suite.ranges]

    def alone(self) -> float:
        """Run one host without a cluster; return the makespan in seconds."""
        host = HostPlay(self, "alone", shared=False)
        for case in range(len(self.suite.answers_s)):
            host.ask(case, 0)
        while host.play.step():
            pass
        return self.provider.makespan_s

    def join(self, name: str, at_s: float) -> HostPlay:
        """Let a host join at a time."""
        host = HostPlay(self, name, shared=True)
        host.play.later(at_s, host.renew)
        host.play.later(at_s, host.look)
        self.hosts.append(host)
        return host

    def step(self) -> None:
        """Run the next event, on any host."""
        min(self.hosts, key=lambda one: one.play.next_s()).play.step()

    def together(self, n_hosts: int, apart_s: float = 0.3) -> float:
        """Start this many hosts one after the other; return the makespan in seconds."""
        for number in range(n_hosts):
            self.join(f"h{number}", number * apart_s)
        while not self.is_over:
            self.step()
        return self.provider.makespan_s


def keys_of(n_keys: int, models: Sequence[str], **amounts: float) -> Pool:
    """A pool of keys with the same limits. Each key serves all models."""
    limits = [Limit(f"key{n}", "key", **amounts) for n in range(n_keys)]
    lanes = [
        lane(model, limit.name, limit.name, model=model, request_s=30.0)
        for model in models
        for limit in limits
    ]
    return pool(lanes, *limits)


ONE = {"turns": (1, 1), "sigma": 0}
STORIES = {
    "phase53": (3, [f"q{n}" for n in range(5)], {"workers": 5, "qps": 18}, 350, {}),
    "qps2": (1, ["m"], {"workers": 5, "qps": 2}, 60, {**ONE, "median_s": 2.5}),
    "ten": (2, ["m"], {"workers": 10, "qps": 10}, 300, {**ONE, "median_s": 1.0}),
    "seats": (8, ["m"], {"workers": 1}, 300, {"turns": (3, 8), "median_s": 1.0}),
}
"""Keys, models, limits of each key, cases, and the kind of their answers."""


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3, 8])
    parser.add_argument("stories", nargs="*", default=list(STORIES))
    options = parser.parse_args()
    for story in options.stories:
        n_keys, models, amounts, n_cases, kind = STORIES[story]
        what = keys_of(n_keys, models, **amounts)
        ratios: dict[int, list[float]] = {}
        for seed in range(options.rounds):
            suite = Suite(models, n_cases, seed, **kind)
            alone_s = RunPlay(what, suite).alone()
            for n_hosts in options.hosts:
                run = RunPlay(what, suite)
                ratios.setdefault(n_hosts, []).append(run.together(n_hosts) / alone_s)
                for key in run.provider.began_s:
                    if "qps" in amounts:
                        assert run.provider.most_in(key, 1.0) <= amounts["qps"]
                    assert run.provider.most_in_flight(key) <= amounts["workers"]
        for n_hosts, found in ratios.items():
            print(
                f"{story}: {n_hosts} hosts / one: median {statistics.median(found):.3f} "
                f"[{min(found):.3f} to {max(found):.3f}], n = {len(found)}, alone {alone_s:.1f} s"
            )


if __name__ == "__main__":
    main()
