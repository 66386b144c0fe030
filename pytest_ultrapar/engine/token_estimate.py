"""Estimate the tokens of a request before it is sent, from the replies of this process.

The reservation decides how fast requests go, and whether a token limit holds. A reservation that is
too large costs time until the answer arrives. One that is too small becomes a debt, and exceeds the
limit for a while. So each part of an estimate is a high quantile of the observed values and not the
mean: a request that takes more is rare, and the many that take less make up for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.request import BOUNDS
from pytest_ultrapar.broker.high_quantile import ANSWER_TOKENS, HighQuantile
from pytest_ultrapar.broker.protocol import TokenBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.apis.reply import Reply
    from pytest_ultrapar.apis.request import Asked
    from pytest_ultrapar.pool.model import Pool

TOKENS_PER_BYTE = 1 / 3
"""Assumed for a prompt. English has some 4.2 bytes of UTF-8 per token, Chinese 3 to 4.5, code and
JSON 3 to 3.5."""
TOKENS_PER_MESSAGE = 8
"""The tokens of a role and its delimiters, rounded up. Source: OpenAI cookbook, "How to count
tokens", 3 per message and 3 for the reply."""
TOKENS_PER_ATTACHMENT = 1000
"""Tokens of an image or the like, whose size in bytes says nothing."""
FIRST_TOKENS = 2000
FIRST_SHARE = 0.05
"""Assumed for a request that is not known yet, since its episode has not begun; at most that share
of the smallest limit. Dozens of cases use it before the first answer. Too few tokens cost little:
the lease is returned unused and requested again with the real estimate."""

MOST_TOKENS = 10**9
"""More than any limit allows: a larger request is refused anyway, and this fits every message."""


class _Model:
    """The estimates for one model."""

    def __init__(self) -> None:
        self.per_byte = HighQuantile(TOKENS_PER_BYTE)
        self.answer = HighQuantile(ANSWER_TOKENS)
        self.first = HighQuantile(0.0)


class TokenEstimates:
    """Estimates for the requests of one process; used on the engine's loop."""

    def __init__(
        self, least: Mapping[str, float], bounds: Mapping[str, int | None] | None = None
    ) -> None:
        """Start without observations.

        Args:
            least: By model, the smallest token limit of its lanes. For other models no tokens are
                reserved.
            bounds: The models with a budget, which `least` names, too: the longest answer if the
                suite does not set a bound; None: unbounded.
        """
        self._least = dict(least)
        self._bounds = dict(bounds or {})
        self._models = {model: _Model() for model in least}

    @classmethod
    def of(cls, pool: Pool) -> TokenEstimates | None:
        """Estimates for a pool; None if no limit counts tokens or money."""
        least: dict[str, float] = {}
        paid: dict[str, None] = {}
        for lane in pool.lanes:
            for name in lane.limits:
                if pool.limits[name].budget is not None:
                    paid[lane.model] = None
                    least.setdefault(lane.model, math.inf)
                for kind, amount in pool.limits[name].rows:
                    if kind.counts == "tokens":
                        least[lane.model] = min(amount, least.get(lane.model, math.inf))
        return cls(least, {model: _bound(pool, model) for model in paid}) if least else None

    def of_first(self, model: str) -> int:
        """Tokens to reserve for the first request of an episode that has not begun.

        Never more than any lane can grant: the real need of the request is known only afterwards.
        """
        known = self._models.get(model)
        if known is None or math.isinf(least := self._least[model]):
            return 0
        tokens = known.first.value or min(FIRST_TOKENS, FIRST_SHARE * least)
        return max(1, math.floor(min(least, tokens)))

    def most(self, model: str, asked: Asked) -> TokenBounds | None:
        """The most that a request may cost; None if no budget counts it.

        Every tokenizer uses at least one byte of text per token. So the prompt is bounded, not
        estimated, except for attachments. An answer is bounded if the request or the pool does it.
        """
        if model not in self._bounds:
            return None
        n_bytes, fixed = _size(asked)
        bound = self._bounds[model] if asked.leaves_bound else None
        return TokenBounds(min(n_bytes + fixed, MOST_TOKENS), *self._most_out(asked, bound))

    def most_of(self, model: str, n_bytes: int, asked: Asked, kept: int) -> TokenBounds | None:
        """Like `most`, for a request that is sent unchanged: each byte of its body counts.

        Estimates are added for content that it refers to: attachments, and the `kept` tokens of a
        state at the provider.
        """
        if model not in self._bounds:
            return None
        most_in = n_bytes + TOKENS_PER_ATTACHMENT * asked.n_named + kept
        return TokenBounds(min(most_in, MOST_TOKENS), *self._most_out(asked, None))

    def _most_out(self, asked: Asked, bound: int | None) -> tuple[int, int]:
        """The most tokens of all answers, and the number of answers without a bound."""
        one = bound if asked.bound is None else asked.bound
        return (0, asked.n_answers) if one is None else (min(asked.n_answers * one, MOST_TOKENS), 0)

    def _answer(self, model: str, asked: Asked) -> int:
        """Estimated tokens of all answers to a request."""
        one = self._models[model].answer.value if asked.bound is None else asked.bound
        return math.ceil(asked.n_answers * one)

    def of_request(self, model: str, asked: Asked, kept: int = 0) -> int:
        """Estimated tokens, in and out, of a request.

        If the request sets `max_tokens`, the answer counts with that: providers do the same.

        Args:
            model: The model of the request.
            asked: The meaning of the request.
            kept: Tokens of the state at the provider that it continues.
        """
        known = self._models.get(model)
        if known is None or math.isinf(self._least[model]):
            return 0
        n_bytes, fixed = _size(asked)
        text = math.ceil(n_bytes * known.per_byte.value)
        return min(text + fixed + kept + self._answer(model, asked), MOST_TOKENS)

    def learn(self, model: str, asked: Asked, reply: Reply, *, is_first: bool) -> None:
        """Learn from the usage in an answer, if it reports one."""
        known = self._models.get(model)
        if known is None or reply.tokens_in is None or reply.tokens_out is None:
            return
        n_bytes, fixed = _size(asked)
        if n_bytes and fixed < TOKENS_PER_ATTACHMENT and asked.goes_on is None:
            known.per_byte.add(max(0, reply.tokens_in - fixed) / n_bytes)
        known.answer.add(reply.tokens_out / asked.n_answers)
        if is_first and known.answer.is_known:
            # Its reservation, which is more than its usage if it set `max_tokens`.
            known.first.add(self.of_request(model, asked))


def _bound(pool: Pool, model: str) -> int | None:
    """The longest answer of a model on any of its lanes; None: unknown."""
    bounds: list[int | None] = []
    for provider in pool.providers:
        for one in provider.models:
            if one.name != model:
                continue
            if any(one.parameters.get(name, name) is None for name in BOUNDS):
                # The suite's value may not be sent.
                return None
            bounds.append(one.max_tokens)
            if one.max_tokens is None and provider.api == "anthropic":
                from pytest_ultrapar.apis.anthropic import MAX_TOKENS  # noqa: PLC0415 - for it only

                bounds[-1] = MAX_TOKENS
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def _size(asked: Asked) -> tuple[int, int]:
    """The bytes of text in a prompt, and the tokens of its other content."""
    n_bytes, tokens = 0, TOKENS_PER_MESSAGE
    for message in asked.messages:
        tokens += TOKENS_PER_MESSAGE
        for name, value in message.items():
            if name == "content" and isinstance(value, list | tuple):
                for part in value:
                    text = part.get("text") if isinstance(part, dict) else None
                    if isinstance(text, str):
                        n_bytes += _n_bytes(text)
                    else:
                        tokens += TOKENS_PER_ATTACHMENT
            elif name != "role":
                n_bytes += _n_bytes(value)
    return n_bytes + sum(_n_bytes(one) for one in asked.beside), tokens


def _n_bytes(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="replace"))
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, msgspec.MsgspecError):  # sending it gives a better message
        return 0
