"""How many requests of an instance may be sent again."""

from __future__ import annotations

SHARE = 0.2
FIXED = 10
"""Retries may be this share of an instance's requests, and this many more.

A provider that fails is then loaded with at most 1.2 times its work; without a bound, three tries
of every request would be three times. Source: Finagle's retry budgets (20 %, and a minimum).
"""


class RetryBudget:
    """Retries drawn for one instance, over all processes of a run.

    A retry is drawn when it is asked for, so that any number of them that wait cannot overdraw; one
    that is withdrawn afterwards stays drawn.

    Attributes:
        n_drawn: Retries allowed so far.
    """

    __slots__ = ("n_drawn",)

    def __init__(self) -> None:
        self.n_drawn = 0

    def draw(self, n_requests: int) -> bool:
        """Take one retry if there is one.

        Args:
            n_requests: Requests that the instance has been sent so far, retries left out.

        Returns:
            Whether there was one.
        """
        if self.n_drawn + 1 > FIXED + SHARE * n_requests:
            return False
        self.n_drawn += 1
        return True
