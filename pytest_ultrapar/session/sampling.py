"""A sample of the cases (`--ultrapar-sample`): drawn by the seed, evenly from tests and models."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from pytest_ultrapar.session import internals, run_config
from pytest_ultrapar.session.collection import REPEAT, parameter
from pytest_ultrapar.session.prefetch import prefetched_of
from pytest_ultrapar.session.selection import generated_key
from pytest_ultrapar.store.cases_file import Generated

if TYPE_CHECKING:
    import pytest


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cells that are not of the sample, with all repetitions of each.

    A larger sample holds all of a smaller one. Models and tests that have the same parameters get
    the same of them, so that they can be compared.
    """
    options, _ = run_config.settings(config)
    seed, sample = options.seed, options.sample
    if sample is None:
        return
    percent = float(sample[:-1]) if sample.endswith("%") else None
    are_cases: dict[int, bool] = {}
    groups: dict[tuple[int, str], dict[str, bytes]] = {}
    cells: dict[int, tuple[tuple[int, str], str]] = {}
    for item in items:
        test = internals.test_identity(item)
        if test not in are_cases:
            are_cases[test] = bool(prefetched_of(item))
        if are_cases[test]:
            model = str(parameter(item, "model"))
            cell = item.name.partition("[")[2].removesuffix(f"r{parameter(item, REPEAT)}]")
            cells[id(item)] = group, _ = (test, model), cell
            lot = f"{seed}/{cell.replace(model, '', 1)}".encode("utf-8", "surrogatepass")
            groups.setdefault(group, {})[cell] = blake2b(lot).digest()
    # The first of each group, then the second of each, ...
    drawn = sorted(
        (place, number, group, cell)
        for number, (group, lots) in enumerate(groups.items())
        for place, cell in enumerate(sorted(lots, key=lots.__getitem__))
        if percent is None or place < math.ceil(round(len(lots) * percent / 100, 6))
    )
    kept = {None, *((group, cell) for *_, group, cell in drawn[: None if percent else int(sample)])}
    left_out = [item for item in items if cells.get(id(item)) not in kept]
    if left_out:
        config.stash[generated_key] = Generated(len(cells))
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if cells.get(id(item)) in kept]
