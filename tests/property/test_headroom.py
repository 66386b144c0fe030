"""With any delay of sends and of the broker, no window at the provider has too many sends."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.headroom import first_late_s
from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.broker.wire import SentLate
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.examples import examples
from tests.pools import lane, pool

if TYPE_CHECKING:
    import random

MODES = (
    "prompt",
    "jittery",
    "as late as promised",
    "as late as allowed",
    "too late",
    "now and then",
    "connecting",
)


class LatePlay(Play):
    """Clients send late and report it late, and the broker's timer is late, too."""

    def __init__(self, limit: Limit, rng: random.Random) -> None:
        # The wider limit above it is the run's own.
        above = Limit("p", "provider", rpm=60 * 40)
        lanes = [lane("i", "k0", "p", "k0")]
        super().__init__(pool(lanes, above, limit), self._send, late_s=first_late_s)
        self._rng = rng
        self.mode = "prompt"
        self.is_refused = False
        self.arrived_s: list[float] = []

    def wake(self, at_s: float) -> None:
        late_s = 0.0 if self.mode == "prompt" else self._rng.choice([0.0, 0.001, 0.02, 0.3])
        # As if a client called by chance, with no other event between.
        super().wake(min(at_s + late_s, max(at_s, self._next_coming_s())))

    def _next_coming_s(self) -> float:
        return self._coming[0][0] if self._coming else math.inf

    def _send(self, request_id: int) -> None:
        lease = self.leases[request_id]
        room_s = lease.send_by_s - lease.granted_s
        late_s = {
            "jittery": self._rng.uniform(0.0, room_s),
            "as late as promised": max(0.0, lease.late_after_s - lease.granted_s),
            "as late as allowed": room_s,
            "too late": room_s + 0.01,
            # Late when its connection was started, and later when it was ready.
            "connecting": self._rng.uniform(0.0, room_s),
            "now and then": self._rng.choice([0.0, 0.0, 0.0, self._rng.uniform(0.0, room_s)]),
        }.get(self.mode, 0.001)
        if self.mode == "connecting" and lease.granted_s + late_s / 2 > lease.late_after_s:
            self.later(late_s / 2, self._say_late, request_id, late_s / 2)
        self.later(late_s, self._sent, request_id, late_s)

    def _sent(self, request_id: int, late_s: float) -> None:
        lease = self.leases[request_id]
        outcome = "unsent"
        if self.now_s <= lease.send_by_s:
            self.arrived_s.append(self.now_s)
            outcome = "rate" if self.is_refused else "ok"
            self.is_refused = False
            if self.now_s > lease.late_after_s:
                self.later(self._rng.uniform(0.0, 0.1), self._say_late, request_id, late_s)
        self.later(
            0.2,
            self.answer,
            request_id,
            outcome,
            Feedback(late_s=late_s, is_too_many=outcome == "rate"),
        )

    def _say_late(self, request_id: int, late_s: float) -> None:
        self.say("gw0", SentLate(self.leases[request_id].lease_id, late_s))


@examples(70)
@given(
    word=st.sampled_from(["qps", "rpm"]),
    rate=st.integers(1, 40),
    spells=st.lists(
        st.tuples(st.sampled_from(MODES), st.integers(1, 60), st.booleans(), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    rng=st.randoms(use_true_random=False),
)
def test_no_window_at_the_provider_has_more_than_the_limit(word, rate, spells, rng):
    window_s = {"qps": 1.0, "rpm": 60.0}[word]
    play = LatePlay(Limit("k0", "key", **{word: rate}), rng)
    for mode, n_sends, is_refused, is_idle in spells:
        play.mode, play.is_refused = mode, is_refused
        asked = [play.ask() for _ in range(n_sends)]
        while play.waiting or play.leases.keys() & asked:
            play.step()
        if is_idle:
            play.wait(rng.uniform(0.0, 3 * window_s))
    inside: deque[float] = deque()
    for at_s in sorted(play.arrived_s):
        inside.append(at_s)
        while inside[0] + window_s <= at_s:
            inside.popleft()
        assert len(inside) <= rate
