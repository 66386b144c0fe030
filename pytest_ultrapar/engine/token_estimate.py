"""How many tokens a request may take, before it is sent: learnt from the replies of this process.

What is reserved decides how fast requests go, and whether a limit on tokens holds. Too much costs
time until the answer comes; too little is a debt, and for a while the limit is passed by it. So
each part of an estimate is a high quantile of what was seen and not the mean: a request that takes
more is rare, and the many that take less make up for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.request import BOUNDS
from pytest_ultrapar.broker.protocol import Most
from pytest_ultrapar.broker.quantile import ANSWER_TOKENS, High

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.apis.reply import Reply
    from pytest_ultrapar.apis.request import Asked
    from pytest_ultrapar.pool.model import Pool

TOKENS_PER_BYTE = 1 / 3
"""Supposed of a prompt. English has some 4.2 bytes of UTF-8 in a token, Chinese 3 to 4.5, code and
JSON 3 to 3.5."""
TOKENS_PER_MESSAGE = 8
"""What a role and its delimiters take, rounded up. Source: OpenAI cookbook, "How to count tokens",
3 per message and 3 for the reply."""
TOKENS_PER_ATTACHMENT = 1000
"""Of an image or the like, whose size in bytes says nothing."""
FIRST_TOKENS = 2000
FIRST_SHARE = 0.05
"""Supposed of a request that is not known yet, since its episode has not begun, but at most that
share of the smallest limit. Dozens of cases ask with it before the first answer tells more. Too
little costs little: the lease is given back unused, and asked for anew with what is known then."""

MOST_TOKENS = 10**9
"""More than any limit allows: what is larger is refused all the same, and fits every message."""


class _Model:
    """What was learnt of one model."""

    def __init__(self) -> None:
        self.per_byte = High(TOKENS_PER_BYTE)
        self.answer = High(ANSWER_TOKENS)
        self.first = High(0.0)


class TokenEstimates:
    """Estimates for the requests of one process; used on the engine's loop."""

    def __init__(
        self, least: Mapping[str, float], bounds: Mapping[str, int | None] | None = None
    ) -> None:
        """Know nothing yet.

        Args:
            least: By model, the smallest limit on tokens among those of its lanes; of models that
                none binds nothing is reserved.
            bounds: Of models on a budget, which `least` names as well: how long an answer is at
                most where the suite does not say; None: nothing bounds it.
        """
        self._least = dict(least)
        self._bounds = dict(bounds or {})
        self._models = {model: _Model() for model in least}

    @classmethod
    def of(cls, pool: Pool) -> TokenEstimates | None:
        """Estimates for a pool; None where no limit counts tokens or money."""
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

        Never more than any lane can grant: what the request needs is known only afterwards.
        """
        known = self._models.get(model)
        if known is None or math.isinf(least := self._least[model]):
            return 0
        tokens = known.first.value or min(FIRST_TOKENS, FIRST_SHARE * least)
        return max(1, math.floor(min(least, tokens)))

    def most(self, model: str, asked: Asked) -> Most | None:
        """What a request may cost; None where no budget counts it.

        A token is a byte of text at least, whatever the tokenizer, so those of the prompt are no
        estimate but for attachments. Nor are those of answers that the request or the pool bounds.
        """
        if model not in self._bounds:
            return None
        n_bytes, fixed = _size(asked)
        bound = self._bounds[model] if asked.leaves_bound else None
        return Most(min(n_bytes + fixed, MOST_TOKENS), *self._most_out(asked, bound))

    def most_of(self, model: str, n_bytes: int, asked: Asked, kept: int) -> Most | None:
        """As `most`, of a request that is sent as it is: each byte of its body counts.

        What it names comes on top, as an estimate: attachments, and the `kept` tokens of a state of
        the provider's.
        """
        if model not in self._bounds:
            return None
        most_in = n_bytes + TOKENS_PER_ATTACHMENT * asked.n_named + kept
        return Most(min(most_in, MOST_TOKENS), *self._most_out(asked, None))

    def _most_out(self, asked: Asked, bound: int | None) -> tuple[int, int]:
        """Tokens that all answers have at most, and how many of them nothing bounds."""
        one = bound if asked.bound is None else asked.bound
        return (0, asked.n_answers) if one is None else (min(asked.n_answers * one, MOST_TOKENS), 0)

    def _answer(self, model: str, asked: Asked) -> int:
        """Tokens that all answers to a request may have."""
        one = self._models[model].answer.value if asked.bound is None else asked.bound
        return math.ceil(asked.n_answers * one)

    def of_request(self, model: str, asked: Asked, kept: int = 0) -> int:
        """Tokens, in and out, that a request may take.

        The answer's are `max_tokens` where the request says so: providers count that, too.

        Args:
            model: Whose request it is.
            asked: What it asks for.
            kept: Tokens of the state of the provider's on which it goes on.
        """
        known = self._models.get(model)
        if known is None or math.isinf(self._least[model]):
            return 0
        n_bytes, fixed = _size(asked)
        text = math.ceil(n_bytes * known.per_byte.value)
        return min(text + fixed + kept + self._answer(model, asked), MOST_TOKENS)

    def learn(self, model: str, asked: Asked, reply: Reply, *, is_first: bool) -> None:
        """Take an answer into account, as far as it says what was used."""
        known = self._models.get(model)
        if known is None or reply.tokens_in is None or reply.tokens_out is None:
            return
        n_bytes, fixed = _size(asked)
        if n_bytes and fixed < TOKENS_PER_ATTACHMENT and asked.goes_on is None:
            known.per_byte.add(max(0, reply.tokens_in - fixed) / n_bytes)
        known.answer.add(reply.tokens_out / asked.n_answers)
        if is_first and known.answer.is_known:
            # What it would have had to reserve, which is more than it took where `max_tokens` is.
            known.first.add(self.of_request(model, asked))


def _bound(pool: Pool, model: str) -> int | None:
    """How long an answer of a model is at most, whichever lane gives it; None: nobody knows."""
    bounds: list[int | None] = []
    for provider in pool.providers:
        for one in provider.models:
            if one.name != model:
                continue
            if any(one.parameters.get(name, name) is None for name in BOUNDS):
                # What a suite says of it may not be sent.
                return None
            bounds.append(one.max_tokens)
            if one.max_tokens is None and provider.api == "anthropic":
                from pytest_ultrapar.apis.anthropic import MAX_TOKENS  # noqa: PLC0415 - with one only

                bounds[-1] = MAX_TOKENS
    known = [bound for bound in bounds if bound is not None]
    return max(known, default=None) if len(known) == len(bounds) else None


def _size(asked: Asked) -> tuple[int, int]:
    """Bytes of text that a prompt has, and the tokens of all else in it."""
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
    except (TypeError, ValueError, msgspec.MsgspecError):  # said better when it is to be sent
        return 0
