"""A world for the ledger of shares: hosts with different clocks, calls that get lost, and a server
that is lost, restored, failed over and has its clock set. A judge counts the requests that hosts
could really send.

`python -m tests.ledger_world --operations 1000000` plays random worlds on the model;
`--server valkey` or `redis` also plays the script and compares each answer.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pytest_ultrapar.cluster.ledger import (
    EXPIRE_MS,
    STOP_MS,
    Answer,
    Notice,
    Renewal,
    RowSpec,
    RowUse,
)
from tests.ledger_model import Ledger

ROWS = (
    RowSpec(name="pool/workers", kind="seats", amount=40, longest_ms=9_000),
    RowSpec(name="pool/qps", kind="paced", amount=50, window_ms=1_000),
    RowSpec(name="a/workers", kind="seats", amount=5, longest_ms=9_000, group="a"),
    RowSpec(name="a/qps", kind="paced", amount=2, window_ms=1_000, group="a"),
    RowSpec(name="b/workers", kind="seats", amount=30, longest_ms=20_000, group="b"),
    RowSpec(name="b/tpm", kind="paced", amount=100_000, window_ms=6_000, group="b"),
    RowSpec(name="b/rpd", kind="counted", amount=300, window_ms=60_000, group="b"),
)
LANES = ((0, 1, 2, 3), (0, 1, 4, 5, 6))
RATE_SLACK = 0.97
"""Tolerance of windows: clocks of hosts that keep rates differ by 2 %."""


@dataclass
class Use:
    """A host's real use of a row."""

    cap: int = 0
    ends: list[float] = field(default_factory=list)
    sent: dict[int, float] = field(default_factory=dict)
    """The shares under which units were used, and the last use, in real time."""
    spends: list[tuple[float, int]] = field(default_factory=list)
    spent: int = 0
    at_call: int = 0
    told: int = 0
    want: int = 0
    unit: int = 1


@dataclass
class Host:
    """The real state of a host: its clock, its rights, and its last call."""

    name: str
    incarnation: str
    run: str
    rate: float
    machine: str
    epoch: int
    uses: list[Use]
    amounts: list[int]
    seq: int = 0
    peers: int = 0
    answered: int = 0
    until: float = -1.0
    """The time on its own clock."""
    asked: Renewal | None = None
    asked_at: float = 0.0
    next_call: float = 0.0
    applied: float = -1.0
    """The time, on its own clock, of the request for its last answer; -1: it had no answer."""
    returned: bool = False
    stopped_until: float = 0.0
    alive: bool = True
    death: float = 0.0
    news_seen: int = 0
    heard: dict[str, str] = field(default_factory=dict)


Serve = Callable[[Renewal, int, str], Answer]


class World:
    """The state of everything, at a moment of real time in milliseconds."""

    def __init__(self, seed: int, serve: Serve | None = None, *, faults: bool = True) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.now = 1_000_000_000.0
        self.offset = 700_000_000_000
        self.run_id = "first"
        self.ledger = Ledger()
        self.serve = serve
        self.hosts: list[Host] = []
        self.calls: list[tuple[float, Renewal, Host, bool]] = []
        self.dumps: list[tuple[object, object]] = []
        self.saves: Callable[[], object] = lambda: None
        self.loads: Callable[[object], None] = lambda _: None
        self.operations = 0
        self.born = 0
        self.disk = 0
        self.wide_clocks = self.dice.random() < 0.5
        self.debts = [0] * len(ROWS)
        self.debts_at: list[list[tuple[float, int]]] = [[] for _ in ROWS]

    # Hosts

    def join(self) -> Host:
        self.born += 1
        dice = self.dice
        rate = dice.uniform(0.5, 2) if self.wide_clocks else dice.uniform(0.98, 1.02)
        amounts = [spec.amount for spec in ROWS]
        host = Host(
            name=f"host{dice.randrange(5)}",
            incarnation=f"life{self.born}",
            run=dice.choice(["one", "one", "two"]),
            rate=rate,
            machine=f"boot{self.born}",
            epoch=self.disk,
            uses=[Use() for _ in ROWS],
            amounts=amounts,
            next_call=self.now + dice.random() * 500,
        )
        for at in range(len(ROWS)):
            self.change_mind(host, at)
        self.hosts.append(host)
        return host

    def change_mind(self, host: Host, at: int) -> None:
        use, dice = host.uses[at], self.dice
        most = ROWS[at].amount
        use.want = dice.choice([0, 1, dice.randint(0, most), most, 2 * most])
        use.unit = 1
        if ROWS[at].amount > 1000:
            use.unit = dice.choice([1, 8_000, 8_000, 30_000])

    def clock(self, host: Host, real: float | None = None) -> float:
        return (self.now if real is None else real) * host.rate

    def may_send(self, host: Host) -> bool:
        return host.alive and self.clock(host) < host.until

    def held(self, host: Host, at: int) -> int:
        use, spec = host.uses[at], ROWS[at]
        cap = use.cap if self.clock(host) < host.until else 0
        if spec.kind == "counted":
            return use.cap
        return max(cap, self.busy(host, at, mine=True))

    def busy(self, host: Host, at: int, *, mine: bool) -> int:
        """Units in use, by the host's own clock or by the judge's."""
        use, spec = host.uses[at], ROWS[at]
        if spec.kind == "seats":
            return sum(end > self.now for end in use.ends)
        window = spec.window_ms / host.rate if mine else spec.window_ms * RATE_SLACK
        if not mine and self.wide_clocks:
            window /= max(host.rate, 1)
        return max(
            (share for share, when in use.sent.items() if when > self.now - window), default=0
        )

    def say(self, host: Host) -> Renewal:
        host.seq += 1
        uses = []
        for at, use in enumerate(host.uses):
            use.at_call = use.spent
            uses.append(RowUse(self.held(host, at), use.want, use.unit, use.spent, use.told))
        specs = tuple(
            spec if spec.amount == amount else msgspec.structs.replace(spec, amount=amount)
            for spec, amount in zip(ROWS, host.amounts, strict=True)
        )
        news = ()
        if self.dice.random() < 0.05:
            name = f"key{self.dice.randrange(3)}"
            news = (Notice(name, self.dice.choice(["401", "quota"]), self.dice.choice([0, 5_000])),)
        return Renewal(
            host=host.name,
            incarnation=host.incarnation,
            seq=host.seq,
            run=host.run,
            server_run_id="",
            clock=host.machine,
            clock_ms=int(self.clock(host)),
            rows=specs,
            uses=tuple(uses),
            lanes=LANES,
            epoch=host.epoch,
            peers=host.peers,
            answered_ms=host.answered,
            news=news,
            news_seen=host.news_seen,
        )

    def ask(self, host: Host) -> None:
        dice = self.dice
        call = self.say(host)
        host.asked, host.asked_at = call, self.now
        host.next_call = self.now + dice.uniform(450, 1_050) / host.rate
        if not self.faults:
            self.calls.append((self.now + 1, call, host, True))
            return
        fate = dice.random()
        delay = dice.choice([1.0, 5.0, dice.uniform(0, 400)])
        if fate < 0.04:
            return
        if fate < 0.06:
            delay = dice.uniform(500, 30_000)
        self.calls.append((self.now + delay, call, host, fate > 0.12))
        if fate > 0.95:
            self.calls.append((self.now + delay + dice.uniform(0, 3_000), call, host, True))

    def leave(self, host: Host) -> None:
        """Return all units of a host, once none is in use any more."""
        for at, use in enumerate(host.uses):
            if ROWS[at].kind == "seats" and self.busy(host, at, mine=True):
                return
            if ROWS[at].kind == "paced" and max(use.sent.values(), default=0) > self.now - 15_000:
                return
        call = msgspec.structs.replace(self.say(host), leaving=True)
        host.alive, host.death, host.until = False, self.now, -1.0
        self.calls.append((self.now + 5, call, host, False))

    def deliver(self) -> None:
        due = sorted((one for one in self.calls if one[0] <= self.now), key=lambda one: one[0])
        self.calls = [one for one in self.calls if one[0] > self.now]
        for _, call, host, heard in due:
            answer = self.answer(call)
            if heard and host.alive and self.now >= host.stopped_until:
                self.apply(host, call, answer)

    def answer(self, call: Renewal) -> Answer:
        self.operations += 1
        server = int(self.now) + self.offset
        answer = self.ledger.renew(call, server, self.run_id)
        if self.serve:
            other = self.serve(call, server, self.run_id)
            assert other == answer, f"operation {self.operations}\n{call}\n{answer}\n{other}"
        return answer

    def apply(self, host: Host, call: Renewal, answer: Answer) -> None:
        if call is not host.asked or answer.stale:
            return
        until = self.clock(host, host.asked_at) + STOP_MS
        if self.clock(host) >= until:
            return
        host.until = until
        # As in `host_shares`: a host treated as dead begins nothing before all its units are free.
        asked = self.clock(host, host.asked_at)
        was_dead = host.returned or -1 < host.applied < asked - EXPIRE_MS
        host.returned = was_dead and any(use.held for use in call.uses)
        host.applied = asked
        if host.epoch != answer.epoch:
            host.news_seen = 0
        host.epoch, host.peers, host.answered = answer.epoch, answer.peers, answer.now_ms
        self.disk = max(self.disk, answer.epoch)
        host.news_seen = answer.news_seen
        for at, share in enumerate(answer.shares):
            use = host.uses[at]
            use.told = share.told
            use.cap = 0 if host.returned else share.grant
            if ROWS[at].kind == "counted":
                use.cap = max(use.cap - (use.spent - use.at_call), 0)

    def work(self, host: Host) -> None:
        dice = self.dice
        for at, (use, spec) in enumerate(zip(host.uses, ROWS, strict=True)):
            use.ends = [end for end in use.ends if end > self.now]
            if len(use.sent) > 8:
                last = self.now - 2.1 * spec.window_ms
                use.sent = {share: when for share, when in use.sent.items() if when > last}
            if dice.random() < 0.03:
                self.change_mind(host, at)
            if not self.may_send(host) or dice.random() < 0.3:
                continue
            if spec.kind == "seats":
                while len(use.ends) < use.cap and dice.random() < 0.8:
                    use.ends.append(self.now + dice.choice([200, 2_000, spec.longest_ms]))
            elif spec.kind == "paced" and use.cap:
                use.sent[use.cap] = self.now
            elif spec.kind == "counted" and use.cap:
                units = dice.randint(1, use.cap)
                use.cap -= units
                use.spent += units
                use.spends.append((self.now, units))

    # Faults

    def trouble(self) -> None:
        dice = self.dice
        alive = [host for host in self.hosts if host.alive]
        if self.faults and alive and dice.random() < 0.004:
            self.leave(dice.choice(alive))
        if len(alive) < 2 or (len(alive) < 7 and dice.random() < 0.03):
            self.join()
        if not self.faults:
            return
        if alive and dice.random() < 0.01:
            host = dice.choice(alive)
            host.alive, host.death = False, self.now
        if alive and dice.random() < 0.01:
            dice.choice(alive).stopped_until = self.now + dice.uniform(500, 40_000)
        if dice.random() < 0.01:
            self.dumps = [(copy.deepcopy(self.ledger), self.saves()), *self.dumps[:2]]
        if dice.random() < 0.004:
            self.run_id = f"server{self.operations}x{self.born}"
            kind = dice.choice(["empty", "old", "same", "over"])
            if kind == "empty":
                self.restore(Ledger(), None)
            elif kind != "same" and self.dumps:
                self.restore(*dice.choice(self.dumps))
        if dice.random() < 0.005:
            self.offset += dice.choice([-600_000, 600_000, -5_000, 5_000, 86_400_000])
        if dice.random() < 0.003:
            self.now += dice.uniform(0, 100_000)

    def restore(self, ledger: object, saved: object) -> None:
        assert isinstance(ledger, Ledger)
        self.ledger = copy.deepcopy(ledger)
        self.loads(saved)

    # The judge

    def judge(self) -> None:
        for at, spec in enumerate(ROWS):
            units = 0
            for host in self.hosts:
                use = host.uses[at]
                if spec.kind == "counted":
                    since = self.now - spec.window_ms
                    units += sum(spent for when, spent in use.spends if when > since)
                    units += use.cap if self.may_send(host) else 0
                else:
                    cap = use.cap if self.may_send(host) else 0
                    units += max(cap, self.busy(host, at, mine=False))
            assert units <= spec.amount, (
                f"{spec.name}: {units} of {spec.amount} in operation {self.operations}"
            )
        for row in self.ledger.rows.values():
            assert row.out == sum(share.out for share in row.shares.values())

    def step(self) -> None:
        self.now += self.dice.choice([20, 60, self.dice.uniform(1, 300)])
        self.trouble()
        self.deliver()
        for host in self.hosts:
            if host.alive and self.now >= host.stopped_until:
                self.work(host)
                if self.now >= host.next_call:
                    self.ask(host)
        self.judge()
        if self.dice.random() < 0.02:
            self.hosts = [
                host for host in self.hosts if host.alive or self.now - host.death < 100_000
            ]

    def play(self, operations: int) -> None:
        while self.operations < operations:
            self.step()


def main() -> None:
    """Play random worlds until this many calls were answered."""
    from tests.ledger_servers import Scripted, server

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--each", type=int, default=2_000, help="operations of one world")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--server", choices=["valkey", "redis"])
    arguments = parser.parse_args()

    def play(scripted: Scripted | None) -> None:
        began, played, seed = time.monotonic(), 0, arguments.first
        while played < arguments.operations:
            world = World(seed)
            if scripted:
                scripted.client.flushall()
                world.serve, world.saves, world.loads = scripted.serve, scripted.save, scripted.load
            try:
                world.play(arguments.each)
            except AssertionError as error:
                print(
                    f"seed {seed} (clocks {'0.5 to 2' if world.wide_clocks else 'close'}): {error}"
                )
            played += world.operations
            seed += 1
        print(f"{played} operations in {time.monotonic() - began:.0f} s, {seed} worlds")

    if arguments.server is None:
        play(None)
    else:
        with server(arguments.server) as client:
            play(Scripted(client))


if __name__ == "__main__":
    main()
