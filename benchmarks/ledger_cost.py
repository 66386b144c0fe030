"""The cost of a renewal: `python -m benchmarks.ledger_cost`.

1,000 hosts share 20 keys with four rows each, in virtual time. As in a run, each host calls once a
second. The cost is the server's own figure (`INFO commandstats`), which excludes network and
Python.
"""

from __future__ import annotations

import argparse
import random
from typing import Any, Literal

from pytest_ultrapar.cluster.ledger import Answer, Renewal, RowSpec, RowUse
from tests.ledger_servers import Scripted, server
from tests.ledger_world import Serve


def rows_of(keys: int) -> tuple[tuple[RowSpec, ...], tuple[tuple[int, ...], ...]]:
    """Four rows for each key, and the lane that uses them."""
    rows = []
    for key in range(keys):
        group = f"key{key}"
        row: tuple[str, Literal["seats", "paced"], int, int]
        for row in (
            ("workers", "seats", 2_000, 0),
            ("qps", "paced", 300, 1_000),
            ("rpm", "paced", 12_000, 60_000),
            ("tpm", "paced", 40_000_000, 60_000),
        ):
            name, kind, amount, window = row
            spec = RowSpec(
                name=f"{group}/{name}",
                kind=kind,
                amount=amount,
                window_ms=window,
                longest_ms=60_000,
                group=group,
            )
            rows.append(spec)
    lanes = tuple(tuple(range(at * 4, at * 4 + 4)) for at in range(keys))
    return tuple(rows), lanes


class Crowd:
    """Hosts that follow the ledger's answers.

    When a grant is reduced, the host reports at its next renewal, a second later, that it no longer
    holds the other units. This includes paced units.
    """

    def __init__(self, serve: Serve, hosts: int, keys: int) -> None:
        self.serve = serve
        self.rows, self.lanes = rows_of(keys)
        self.dice = random.Random(1)
        self.now = 10_000_000
        self.count = 0
        self.hosts = [self.join() for _ in range(hosts)]

    def join(self) -> dict[str, Any]:
        """Return a new host that wants random amounts and has no units yet."""
        self.count += 1
        wants = [self.dice.choice([1, 1, 2, 3]) * max(row.amount // 1_000, 1) for row in self.rows]
        wants = [
            want * 4 if row.kind == "paced" else want
            for want, row in zip(wants, self.rows, strict=True)
        ]
        units = [8_000 if row.name.endswith("tpm") else 1 for row in self.rows]
        return {
            "name": f"host{self.count}",
            "seq": 0,
            "held": [0] * len(self.rows),
            "grants": [0] * len(self.rows),
            "wants": wants,
            "units": units,
            "epoch": 0,
        }

    def renew(self, host: dict[str, Any]) -> Answer:
        """Request all units that the host wants, and store the grants."""
        host["seq"] += 1
        uses = tuple(
            RowUse(held, want, unit)
            for held, want, unit in zip(host["held"], host["wants"], host["units"], strict=True)
        )
        answer = self.serve(
            Renewal(
                host=host["name"],
                incarnation=host["name"],
                seq=host["seq"],
                run="one",
                server_run_id="",
                clock=host["name"],
                clock_ms=self.now,
                rows=self.rows,
                uses=uses,
                lanes=self.lanes,
                epoch=host["epoch"],
                fresh=True,
            ),
            self.now,
            "one",
        )
        host["epoch"] = answer.epoch
        host["held"] = [share.grant for share in answer.shares]
        return answer

    def second(self, *, change: float = 0, replaced: int = 0) -> None:
        """Replace some hosts with new ones, change a share of all wants, and renew each host.

        Args:
            change: The probability that a want changes.
            replaced: How many hosts to replace.
        """
        for _ in range(replaced):
            self.hosts.pop(self.dice.randrange(len(self.hosts)))
            self.hosts.append(self.join())
        begun = self.now
        for at, host in enumerate(self.hosts):
            self.now = begun + at * 1000 // len(self.hosts)
            if change:
                host["wants"] = [
                    max(1, int(want * self.dice.uniform(0.5, 2)))
                    if self.dice.random() < change
                    else want
                    for want in host["wants"]
                ]
            self.renew(host)
        self.now = begun + 1000


def main() -> None:
    """Print one line for each scenario."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=["valkey", "redis"], default="valkey")
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=20)
    arguments = parser.parse_args()
    with server(arguments.server) as client:
        crowd = Crowd(Scripted(client).serve, arguments.hosts, arguments.keys)

        def told(story: str, seconds: int, **kind: int) -> None:
            client.config_resetstat()
            for _ in range(seconds):
                crowd.second(**kind)
            taken = client.info("commandstats")["cmdstat_evalsha"]
            print(f"{story}: {taken['usec_per_call'] / 1000:.3f} ms per renewal")

        told("all join", 8)
        told("nothing changes", 5)
        told("a host is replaced every 10 s", 10, replaced=0)
        for _ in range(2):
            told("  one is replaced", 1, replaced=1)
            told("  the next 9 s", 9)
        told("all change every second", 5, change=1)
        print(f"memory {client.info('memory')['used_memory_human']}")


if __name__ == "__main__":
    main()
