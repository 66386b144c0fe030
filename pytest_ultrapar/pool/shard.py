"""Shards: part K of N of a run, with its own part of every limit. Shards do not need a server.

N independent runs together stay within a limit, because each stays within its part, and all parts
together do not exceed the limit. Limits are divided into whole units, and the first shards get the
remainder: if a limit has A units, shard K of N gets floor(A / N), plus one if K <= A mod N.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.field_checks import shown
from pytest_ultrapar.pool.model import EffectiveValue
from pytest_ultrapar.pool.money import amount_of, budget_units, money
from pytest_ultrapar.pool.settings import Shard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.pool.model import Limit, Pool

MOST_WINDOWS = 1_000_000
"""A fractional rate becomes a whole number of units over at most this many windows. The smallest
rate that a pool may set is 0.000001 per window."""
_DIGITS = 9
"""The maximum number of digits in a job's number; no CI system starts 10^9 jobs or more."""


# -- the number of the shard -----------------------------------------------------------------------


_SYSTEMS = (
    ("GitLab", "CI_NODE_INDEX", "CI_NODE_TOTAL"),
    ("CircleCI", "CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL"),
    ("Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"),
)
"""Systems that start N jobs, and each system's variables for a job's number and for N."""


def settled_shard(shard: Shard, environ: Mapping[str, str], origin: str) -> tuple[Shard, str]:
    """Return the shard and its origin. The CI system's variables define the shard for `auto`.

    Args:
        shard: The shard as the user wrote it.
        environ: The environment's variables.
        origin: The option or variable that set the shard.

    Raises:
        ConfigError: For `auto`, no system or more than one system defines a shard, or a system's
            variables do not describe a valid shard.
    """
    if not shard.is_auto:
        return shard, origin
    found = [one for one in _SYSTEMS if environ.get(one[1], "").strip()]
    if not found and environ.get("CI_NODE_TOTAL", "").strip() == "1":
        # GitLab gives no index to a job that is not parallel.
        return Shard(1, 1), f"{origin}, CI_NODE_TOTAL"
    said = [f"{name} ({number} and {total})" for name, number, total in found or _SYSTEMS]
    if len(found) != 1:
        what = f"{' and '.join(said)} both set a shard" if found else "no variable sets a shard"
        looked = "" if found else f": looked for {', '.join(said)}"
        refuse(f"{origin}: {what}{looked}; instead of auto, write K/N, such as 2/4")
    ((name, number, total),) = found
    k, n = _whole(environ, number), _whole(environ, total)
    if name == "CircleCI":
        k += 1
    if name == "Slurm":
        least, most = (_whole(environ, f"SLURM_ARRAY_TASK_{word}") for word in ("MIN", "MAX"))
        k += 1 - least
        if most - least + 1 != n:
            refuse(
                f"{origin}: the step of Slurm's array must be 1: --array={least}-{least + n - 1}"
            )
    if not 1 <= k <= n:
        refuse(
            f"{origin}: {number} and {total} from {name} give shard {k} of {n}; instead of auto, "
            "write K/N, such as 2/4"
        )
    return Shard(k, n), f"{origin}, {number} and {total}"


def _whole(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        found = shown(text) if text else "nothing"
        refuse(f"environment {name}: must be a whole number (got {found})")
    return int(text)


# -- the shard's part of the cases -----------------------------------------------------------------


def is_in(shard: Shard, case_id: str) -> bool:
    """Whether the case or test with this id (hex) belongs to the shard."""
    return int(case_id, 16) % shard.n == shard.k - 1


# -- the shard's part of the limits ----------------------------------------------------------------


def share_of(amount: int, shard: Shard) -> int:
    """The shard's part of `amount` units. The parts of all shards add up to `amount`."""
    return amount // shard.n + (shard.k <= amount % shard.n)


def whole_units(amount: float) -> tuple[int, int]:
    """Convert an amount per window to (whole units, number of windows): 1.5 becomes 3 in 2 windows.

    `Pacer` enforces fractional rates in this form. The result exceeds the amount by at most one
    billionth, if at all.
    """
    found = Fraction(str(amount)).limit_denominator(MOST_WINDOWS)
    if found > Fraction(str(amount)) * (1 + Fraction(1, 10**9)):
        found = Fraction(math.floor(amount * MOST_WINDOWS), MOST_WINDOWS)
    return found.numerator, found.denominator


def divided(pool: Pool, shard: Shard) -> Pool:
    """Return the pool with a shard's part of every limit.

    Raises:
        ConfigError: A limit has fewer units than there are shards; the message shows both numbers.
    """
    origins = {one.name: one.origin for one in pool.effective}
    notes: dict[str, EffectiveValue] = {}
    limits = {}
    for name, limit in pool.limits.items():
        limits[name], said = _part(limit, shard, pool.currency)
        for word, whole in said.items():
            if (own := f"{name} {word}") in origins:
                value, origin = getattr(limits[name], word), f"{origins[own]}, shard {shard}"
                notes[own] = EffectiveValue(own, value, f"{origin} of {whole}")
    return replace(
        pool,
        limits=limits,
        held={name: _part(one, shard, pool.currency)[0] for name, one in pool.held.items()},
        undivided=pool.limits,
        effective=tuple(notes.get(one.name, one) for one in pool.effective),
    )


def _part(limit: Limit, shard: Shard, currency: str) -> tuple[Limit, dict[str, str]]:
    """A shard's part of a limit, and the limit's undivided amounts by kind, for display."""
    parts: dict[str, Any] = {}
    said: dict[str, str] = {}
    for kind, amount in limit.rows:
        units, windows = whole_units(amount)
        said[kind.word] = f"{amount:.15g}"
        if windows > 1:
            said[kind.word] += f" ({units} in {windows * kind.window_s:g} s)"
        own = _own(f"{kind.word} = {said[kind.word]} of {limit.name}", units, shard)
        parts[kind.word] = own / windows if kind.is_rate else own
    if limit.budget is not None:
        said["budget"] = money(limit.budget, currency)
        units = budget_units(limit.budget)
        own = _own(f"budget = {limit.budget:.15g} of {limit.name}", units, shard)
        parts["budget"] = amount_of(own)
        if budget_units(parts["budget"]) > own:
            # A float cannot represent every trillionth of a large amount.
            parts["budget"] = math.nextafter(parts["budget"], 0)
    return replace(limit, **parts), said


def _own(what: str, units: int, shard: Shard) -> int:
    if units < shard.n:
        most = f"use at most {units} shard{'' if units == 1 else 's'}"
        refuse(f"{what} divided by {shard.n} shards leaves 0 for shard {shard.n}/{shard.n}; {most}")
    return share_of(units, shard)
