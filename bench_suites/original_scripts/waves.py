"""The processes of a phase that run in parallel.

Source: script seed 002, and script seed 000 where it differs.

A phase is a sequence of waves. The processes of a wave run in parallel, and the next wave begins
when all of them have ended.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal, get_args

from bench_suites.original_scripts.model_key import is_qwen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.original_scripts.process import Process

Variant = Literal["document", "ultra-document"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
Wave = list["Process"]

STAGGER_S = 15.0
"""Nominal seconds between the starts of phase 5.2's processes. Source: script seed 002."""


def waves(processes: Sequence[Process], variant: Variant) -> list[Wave]:
    """The waves of one phase.

    Args:
        processes: All processes of the phase, model by model.
        variant: The document to follow: `document` is script seed 002, and `ultra-document` is
            script seed 000.
    """
    phase = processes[0].suite
    if phase == "phase52":
        return [_by_part(processes)]
    if phase == "phase53":
        return _flaw_groups(processes, variant)
    # 5.1, 5.4 and 5.5 run one process at a time.
    return [[process] for process in processes]


def starts_s(wave: Wave) -> list[float]:
    """The start of each process of a wave, in seconds after the wave's beginning."""
    step_s = STAGGER_S if wave[0].suite == "phase52" else 0.0
    return [step_s * place for place in range(len(wave))]


def _by_part(processes: Sequence[Process]) -> Wave:
    """The order of the starts: all models at the first difficulty, then all at the second."""
    parts = list(dict.fromkeys(process.part for process in processes))
    return sorted(processes, key=lambda process: parts.index(process.part))


def _flaw_groups(processes: Sequence[Process], variant: Variant) -> list[Wave]:
    """The waves, one model after the other.

    Script seed 000 runs the flaw groups in parallel only for Qwen.
    """
    found: list[Wave] = []
    for model, own in groupby(processes, key=lambda process: process.model):
        if variant == "ultra-document" and not is_qwen(model):
            found += [[process] for process in own]
        else:
            found.append(list(own))
    return found
