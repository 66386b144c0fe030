"""Estimate the tokens of a request before it is sent, from replies that this process has received.

The broker reserves the estimated tokens. The size of this reservation determines how fast requests
are sent, and whether a token limit is kept. If a reservation is too large, it slows down the run
until the answer arrives. If it is too small, the limit is exceeded for a while, until later
requests have made up for the excess. So each part of an estimate is a high quantile of the observed
values, not their mean. Few requests use more than that, and the many requests that use less make up
for them.
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
"""The assumed number of tokens per byte of a prompt. A token has about 4.2 bytes of UTF-8 in
English text, 3 to 4.5 bytes in Chinese, and 3 to 3.5 bytes in code or JSON."""
TOKENS_PER_MESSAGE = 8
"""Tokens for a message's role and delimiters, rounded up. Source: OpenAI cookbook, "How to count
tokens": 3 per message, and 3 for the reply."""
TOKENS_PER_ATTACHMENT = 1000
"""How many tokens to assume for an image or similar content, because its size in bytes says nothing
about its tokens."""
FIRST_TOKENS = 2000
FIRST_SHARE = 0.05
"""Before an episode has begun, its first request is unknown. It is then assumed to use
`FIRST_TOKENS`, but at most `FIRST_SHARE` of the smallest token limit. Dozens of cases use this
assumption before the first answer arrives. If it is too small, little is lost: the episode returns
the lease unused, and requests another one with the actual estimate."""

MOST_TOKENS = 10**9
"""The largest estimate. It fits into every message to the broker. It is more than a realistic limit
allows, so larger requests would be refused anyway."""


class _Model:
    """The estimates for one model."""

    def __init__(self) -> None:
        self.per_byte = HighQuantile(TOKENS_PER_BYTE)
        self.answer = HighQuantile(ANSWER_TOKENS)
        self.first = HighQuantile(0.0)


class TokenEstimates:
    """Estimates tokens for the requests of one process; used on the engine's loop."""

    def __init__(
        self, least: Mapping[str, float], bounds: Mapping[str, int | None] | None = None
    ) -> None:
        """Start without observations.

        Args:
            least: For each model, the smallest token limit that applies to any of its lanes. No
                tokens are reserved for models that are missing here.
            bounds: For each model with a budget, the maximum number of tokens in an answer, if the
                suite does not set a maximum; None means unlimited. `least` must contain these
                models, too.
        """
        self._least = dict(least)
        self._bounds = dict(bounds or {})
        self._models = {model: _Model() for model in least}

    @classmethod
    def of(cls, pool: Pool) -> TokenEstimates | None:
        """Make the estimates for a pool; None if no limit counts tokens or money."""
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
        """How many tokens to reserve for the first request of an episode that has not begun.

        The token limits of every lane allow this number. The actual number is known only when the
        episode has begun.
        """
        known = self._models.get(model)
        if known is None or math.isinf(least := self._least[model]):
            return 0
        tokens = known.first.value or min(FIRST_TOKENS, FIRST_SHARE * least)
        return max(1, math.floor(min(least, tokens)))

    def most(self, model: str, asked: Asked) -> TokenBounds | None:
        """Return how many tokens a request can use at most; None if its model has no budget.

        In every tokenizer, a token has at least one byte of text. So the number for the prompt is a
        real maximum, except that attachments are estimated. An answer has a maximum only if the
        request or the pool sets it.
        """
        if model not in self._bounds:
            return None
        n_bytes, fixed = _size(asked)
        bound = self._bounds[model] if asked.leaves_bound else None
        return TokenBounds(min(n_bytes + fixed, MOST_TOKENS), *self._most_out(asked, bound))

    def most_of(self, model: str, n_bytes: int, asked: Asked, kept: int) -> TokenBounds | None:
        """Return the same maximum as `most`, for a request that is sent unchanged.

        Each byte of the body counts as a token. Estimates are added for content that the request
        only refers to: attachments, and the `kept` tokens of a conversation at the provider.
        """
        if model not in self._bounds:
            return None
        most_in = n_bytes + TOKENS_PER_ATTACHMENT * asked.n_named + kept
        return TokenBounds(min(most_in, MOST_TOKENS), *self._most_out(asked, None))

    def _most_out(self, asked: Asked, bound: int | None) -> tuple[int, int]:
        """Return the sum of the bounded answers' token limits, and how many are unbounded."""
        one = bound if asked.bound is None else asked.bound
        return (0, asked.n_answers) if one is None else (min(asked.n_answers * one, MOST_TOKENS), 0)

    def _answer(self, model: str, asked: Asked) -> int:
        """Estimate the tokens of all answers to a request."""
        one = self._models[model].answer.value if asked.bound is None else asked.bound
        return math.ceil(asked.n_answers * one)

    def of_request(self, model: str, asked: Asked, kept: int = 0) -> int:
        """Estimate the tokens of a request and its answers together.

        If the request sets `max_tokens`, each answer counts as that many tokens, because providers
        count in the same way.

        Args:
            model: The model of the request.
            asked: The parsed content of the request.
            kept: The number of tokens in the stored conversation that the request continues.
        """
        known = self._models.get(model)
        if known is None or math.isinf(self._least[model]):
            return 0
        n_bytes, fixed = _size(asked)
        text = math.ceil(n_bytes * known.per_byte.value)
        return min(text + fixed + kept + self._answer(model, asked), MOST_TOKENS)

    def learn(self, model: str, asked: Asked, reply: Reply, *, is_first: bool) -> None:
        """Improve the estimates with the token usage that an answer reports, if any."""
        known = self._models.get(model)
        if known is None or reply.tokens_in is None or reply.tokens_out is None:
            return
        n_bytes, fixed = _size(asked)
        if n_bytes and fixed < TOKENS_PER_ATTACHMENT and asked.goes_on is None:
            known.per_byte.add(max(0, reply.tokens_in - fixed) / n_bytes)
        known.answer.add(reply.tokens_out / asked.n_answers)
        if is_first and known.answer.is_known:
            # Add the reserved tokens, not the usage: if the request set `max_tokens`, more is
            # reserved than used.
            known.first.add(self.of_request(model, asked))


def _bound(pool: Pool, model: str) -> int | None:
    """Return the maximum number of tokens in a model's answer on any lane; None if unknown."""
    bounds: list[int | None] = []
    for provider in pool.providers:
        for one in provider.models:
            if one.name != model:
                continue
            if any(one.parameters.get(name, name) is None for name in BOUNDS):
                # The pool leaves out this parameter, so a suite's maximum would not be sent.
                return None
            bounds.append(one.max_tokens)
            if one.max_tokens is None and provider.api == "anthropic":
                from pytest_ultrapar.apis.anthropic import MAX_TOKENS  # noqa: PLC0415 - for it only

                bounds[-1] = MAX_TOKENS
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def _size(asked: Asked) -> tuple[int, int]:
    """Return the size of a prompt's text in bytes, and the estimated tokens of everything else."""
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
    except (TypeError, ValueError, msgspec.MsgspecError):  # the send fails with a better message
        return 0
