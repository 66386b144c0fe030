"""Which processes of a phase run at the same time: seed 002, and seed 000 where it differs.

A phase is a sequence of waves. The processes of a wave run together, and the next wave begins when
all of them have ended.
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
"""Phase 5.2 starts its processes so far apart, nominally. Source: seed 002, phase 5.2."""


def waves(processes: Sequence[Process], variant: Variant) -> list[Wave]:
    """The waves of one phase.

    Args:
        processes: All processes of the phase, model by model.
        variant: Whose account: `document` is seed 002, `ultra-document` seed 000.
    """
    phase = processes[0].suite
    if phase == "phase52":
        return [_by_part(processes)]
    if phase == "phase53":
        return _flaw_groups(processes, variant)
    # 5.1, 5.4 and 5.5: nothing runs at the same time.
    return [[process] for process in processes]


def starts_s(wave: Wave) -> list[float]:
    """Seconds after its wave's beginning when each process of it starts."""
    step_s = STAGGER_S if wave[0].suite == "phase52" else 0.0
    return [step_s * place for place in range(len(wave))]


def _by_part(processes: Sequence[Process]) -> Wave:
    """All models at the first difficulty, then all at the second: the order of the starts."""
    parts = list(dict.fromkeys(process.part for process in processes))
    return sorted(processes, key=lambda process: parts.index(process.part))


def _flaw_groups(processes: Sequence[Process], variant: Variant) -> list[Wave]:
    """Model by model; seed 000 runs the three groups of a model together for Qwens only."""
    found: list[Wave] = []
    for model, own in groupby(processes, key=lambda process: process.model):
        if variant == "ultra-document" and not is_qwen(model):
            found += [[process] for process in own]
        else:
            found.append(list(own))
    return found
