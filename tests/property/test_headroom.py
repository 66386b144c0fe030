"""However late sends are, within what was promised: no window at the provider has too many."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.headroom import first_late_s
from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.examples import examples
from tests.pools import lane, pool

MODES = ("prompt", "jittery", "as late as allowed", "too late", "by turns", "one refused")


@examples(150)
@given(
    word=st.sampled_from(["qps", "rpm"]),
    rate=st.integers(1, 30),
    spells=st.lists(
        st.tuples(st.sampled_from(MODES), st.integers(1, 60), st.booleans()), min_size=1, max_size=8
    ),
    rng=st.randoms(use_true_random=False),
)
def test_no_window_at_the_provider_has_more_than_the_limit(word, rate, spells, rng):
    window_s = {"qps": 1.0, "rpm": 60.0}[word]
    limit = Limit("k0", "key", **{word: rate})
    play = Play(pool([lane("i", "k0", "k0")], limit), late_s=first_late_s)
    arrived_s: list[float] = []

    def send(mode: str, n: int) -> None:
        request = play.ask()
        while request not in play.leases:
            play.step()
        lease = play.leases[request]
        most_s = lease.send_by_s - lease.granted_s
        late_s = {
            "jittery": rng.uniform(0.0, most_s),
            "as late as allowed": most_s,
            "too late": most_s + 0.01,
            "by turns": most_s * (n % 2),
        }.get(mode, 0.001)
        if late_s <= most_s:
            arrived_s.append(lease.granted_s + late_s)
        outcome = "unsent" if late_s > most_s else "ok"
        if mode == "one refused" and n == 0:
            outcome = "rate"
        play.answer(request, outcome, Feedback(late_s=late_s))

    for mode, n_sends, is_idle in spells:
        for n in range(n_sends):
            send(mode, n)
        if is_idle:
            play.wait(rng.uniform(0.0, 3 * window_s))
    inside: deque[float] = deque()
    for at_s in sorted(arrived_s):
        inside.append(at_s)
        while inside[0] + window_s <= at_s:
            inside.popleft()
        assert len(inside) <= rate
