"""How many examples hypothesis draws: 40 % among the slow tests, a tenth in every run.

All are drawn with `--hypothesis-profile=all` too.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, SLOW, ALL = "quick", "slow", "all"
_IN_ALL = 100

for _profile, _n in ((QUICK, _IN_ALL // 10), (SLOW, _IN_ALL * 2 // 5), (ALL, _IN_ALL)):
    # A busy machine makes any example slow, and so the drawing of one; what is slow for good is
    # seen in `--durations`.
    settings.register_profile(
        _profile, max_examples=_n, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def examples(n: int) -> settings:
    """Settings of a test that draws `n` examples of all, where 100 are too many or too few."""
    return settings(max_examples=max(3, n * settings.default.max_examples // _IN_ALL))
