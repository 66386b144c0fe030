"""Seats of models, and those of the original scripts' pools."""

from pathlib import Path

import pytest

from pytest_ultrapar.analysis.plan.load import provider_seats
from pytest_ultrapar.report.plan_report import seat_lines
from tests.unit.pool_texts import simulated

ROOT = Path(__file__).parents[2]


def said(pool):
    return seat_lines(provider_seats(pool, pool.lanes))


OPEN = "{0} each for DeepSeek-V3-0324, DeepSeek-R1-0528, Llama-3.3-70B-Instruct"
CLOSED = "{0} each for gpt-4o-mini, gpt-5-mini"
QWENS = "{0} each for qwen2.5-72b-instruct, qwen2.5-32b-instruct, qwen2.5-14b-instruct and 2 more"
LAB = "1 each for o3-0416-global, gemini-2.5-flash-06-17, kimi-k2 and 1 more"


@pytest.mark.parametrize(
    ("name", "mode", "azure", "lab"),
    [
        # Seed 000: 3 instances of 100, 200 each, 1 per Qwen key, 1 for each closed model.
        ("seed000", "fixed", (1300, 300, 200), (7, 3)),
        # Seed 001: 300 in flight per open model, 15 (fixed mode: 9) per Qwen, 1 per closed one.
        ("seed001", "fixed", (1300, 300, 200), (49, 9)),
        ("seed001", "adaptive", (1300, 300, 200), (79, 15)),
        # Seed 003: 50 x 3 = 150, 100, 2 x 3 = 6, 1 for each closed model.
        ("seed003", "fixed", (650, 150, 100), (10, 6)),
        ("seed003", "adaptive", (1300, 300, 200), (19, 15)),
    ],
)
def test_documents_pools_have_the_documents_seats(load, name, mode, azure, lab):
    pool = load((ROOT / "pools" / f"{name}.toml").read_text(encoding="utf-8"), {"RATE_MODE": mode})
    all_azure, each_open, each_closed = azure
    all_lab, each_qwen = lab
    assert said(pool) == [
        f"seats of azure: {all_azure} in all; "
        f"{OPEN.format(each_open)}; {CLOSED.format(each_closed)}",
        f"seats of ideallab: {all_lab} in all; {QWENS.format(each_qwen)}; {LAB}",
    ]


OTHER = '[[provider.model]]\nname = "b"\n'
THREE = f"{OTHER}per_instance = {{ workers = 3 }}\n"
TWO = {"model": "per_instance = { workers = 2 }"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # The whole pool's bound joins no models, and a provider's joins all of its own.
        (simulated(**TWO, top="[pool]\nworkers = 1") + THREE, "5 in all; 2 for echo; 3 for b"),
        (simulated("workers = 4", **TWO) + THREE, "4 in all; 2 for echo; 3 for b"),
        (simulated("per_key = { workers = 10 }"), "10 for echo"),
        (simulated(**TWO) + OTHER, "2 for echo; unlimited for b"),
        (simulated("per_key = { qps = 5 }"), None),
    ],
)
def test_seats_of_a_provider_are_those_of_its_models(load, text, line):
    assert said(load(text)) == ([f"seats of sim: {line}"] if line else [])
