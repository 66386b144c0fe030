"""How many examples hypothesis draws: all of them among the slow tests, a tenth in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, FULL = "quick", "full"
_IN_FULL = 100

for _profile, _n in ((QUICK, _IN_FULL // 10), (FULL, _IN_FULL)):
    # A busy machine makes any example slow, and so the drawing of one; what is slow for good is
    # seen in `--durations`.
    settings.register_profile(
        _profile, max_examples=_n, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def examples(n: int) -> settings:
    """Settings of a test that draws `n` examples in full, where 100 are too many or too few."""
    return settings(max_examples=max(3, n * settings.default.max_examples // _IN_FULL))
