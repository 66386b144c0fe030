"""The number of examples of hypothesis: 40 % in slow tests, a tenth in every run.

`--hypothesis-profile=all` draws all of them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, SLOW, ALL = "quick", "slow", "all"
_IN_ALL = 100

for _profile, _n in ((QUICK, _IN_ALL // 10), (SLOW, _IN_ALL * 2 // 5), (ALL, _IN_ALL)):
    # No deadline: on a busy machine, each example and its drawing can be slow. `--durations` shows
    # tests that are always slow.
    settings.register_profile(
        _profile, max_examples=_n, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def examples(n: int) -> settings:
    """Settings of a test that draws `n` examples in full, if 100 are too many or too few."""
    return settings(max_examples=max(3, n * settings.default.max_examples // _IN_ALL))
