from __future__ import annotations

import msgspec

from pytest_ultrapar.coordinator.earlier_run import differences
from pytest_ultrapar.pool.model import answered_by
from tests.unit.pool_texts import real, simulated
from tests.unit.test_results_manifest import MANIFEST


def test_skill_and_persona_identify_a_model_and_limits_and_keys_do_not(load):
    pool = load(simulated(model='persona = "obedient"\nskill = 0.5'))
    assert answered_by(pool) == {"echo": "simulated obedient of skill 0.5, simulation seed 0"}
    more = simulated("per_key = { workers = 3 }", model='persona = "obedient"\nskill = 0.5')
    assert answered_by(load(more)) == answered_by(pool)
    other = simulated(model='persona = "obedient"\nskill = 0.9')
    assert answered_by(load(other)) != answered_by(pool)


def test_real_models_are_identified_by_their_api_names_without_an_address(load):
    pool = load(real(model='api_name = "gpt-x"'))
    (who,) = answered_by(pool).values()
    assert who == "gpt-x at p (openai)"


def test_run_answered_by_a_different_model_is_not_reused(load):
    pool = load(simulated(model="skill = 0.5", named="m"))
    who = answered_by(pool)
    same = msgspec.structs.replace(MANIFEST, answered_by=who)
    assert differences(same, seed=MANIFEST.seed, data={}, pool=pool) == []
    better = {"m": who["m"].replace("0.5", "0.9")}
    other = msgspec.structs.replace(MANIFEST, answered_by=better)
    (found,) = differences(other, seed=MANIFEST.seed, data={}, pool=pool)
    assert found == f"m's answers came from {better['m']} and now come from {who['m']}"
