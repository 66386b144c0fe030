import pytest

from bench_suites.workflow import TASKS, load_tools
from bench_suites.workflow.simulation import ARGUMENT_ERRORS, ToolSimulation

TASK = next(t for t in TASKS.by_id.values() if "file_operations_writer" in t.required)
STEPS = {step.tool: dict(step.parameters) for step in TASK.plan.steps}
PARSER, TRANSFORMER, WRITER = (
    "data_processing_parser",
    "data_processing_transformer",
    "file_operations_writer",
)


def simulation(rate=1.0, seed=1):
    return ToolSimulation(rate, seed, TASK.inputs)


def run_until(tools, name, *, ok):
    for _ in range(200):
        if tools.run(name, STEPS[name]).ok is ok:
            return
    raise AssertionError(name)


def test_chance_is_the_nominal_rate_within_bounds():
    parser = load_tools()[PARSER]
    assert simulation(0.8).chance_of(parser) == 0.8
    assert simulation(0.99).chance_of(parser) == 0.99
    assert simulation(1.0).chance_of(parser) == 1
    assert simulation(0.0).chance_of(parser) == 0


@pytest.mark.parametrize("rate", [1.0, 0.8])
def test_tool_does_not_run_before_its_dependencies_have_succeeded(rate):
    tools = simulation(rate)
    for need in (PARSER, TRANSFORMER, "network_validator"):
        assert tools.run(WRITER, STEPS[WRITER]).error == "NOT_READY"
        run_until(tools, need, ok=True)
    assert tools.chance_of(load_tools()[WRITER]) == rate
    run_until(tools, WRITER, ok=True)


def test_chance_decreases_with_failures_among_the_last_three_runs():
    parser = load_tools()[PARSER]
    for seed in range(30):
        tools = simulation(0.5, seed)
        runs = []
        for _ in range(6):
            expected = 0.5 * 0.9 ** runs[-3:].count(False) if len(runs) >= 3 else 0.5
            assert tools.chance_of(parser) == pytest.approx(expected)
            runs.append(tools.run(PARSER, STEPS[PARSER]).ok)


def test_successes_have_the_nominal_frequency():
    n = sum(simulation(0.8, seed).run(PARSER, STEPS[PARSER]).ok for seed in range(2000))
    # Binomial with p = 0.8: four standard deviations are 72.
    assert abs(n - 1600) < 72


def test_results_are_the_same_for_a_seed_and_differ_between_seeds():
    def course(seed):
        tools = simulation(0.5, seed)
        return [tools.run(PARSER, STEPS[PARSER]) for _ in range(8)]

    assert course(3) == course(3)
    assert len({tuple(result.ok for result in course(seed)) for seed in range(20)}) > 10


def test_arguments_are_checked_before_the_draw_and_do_not_count_as_runs():
    tools = simulation(0.9)
    for _ in range(5):
        result = tools.run(PARSER, {"source": "data/nowhere.csv", "format": "csv"})
        assert result.error == "INVALID_INPUT"
    assert tools.run(PARSER, None).error == "MALFORMED_CALL"
    assert tools.chance_of(load_tools()[PARSER]) == 0.9


def test_random_errors_belong_to_the_tool_and_blame_no_argument():
    seen = set()
    for seed in range(200):
        result = simulation(0.0, seed).run(PARSER, STEPS[PARSER])
        if not result.ok:
            seen.add(result.error)
    assert seen == set(load_tools()[PARSER].errors) - set(ARGUMENT_ERRORS)


def test_unknown_tool_gets_an_error_and_is_never_replaced():
    for name in ("", "parser", "data_processing_parse", "network_poster utility_logger"):
        result = simulation().run(name, {})
        assert (result.error, result.tool) == ("UNKNOWN_TOOL", name)


def test_written_file_can_be_read():
    tools = simulation()
    source = {"source": STEPS[WRITER]["destination"]}
    other = ToolSimulation(1.0, 1, {})
    assert other.run("file_operations_reader", source).error == "FILE_NOT_FOUND"
    for name in TASK.required[: TASK.required.index(WRITER) + 1]:
        run_until(tools, name, ok=True)
    run_until(tools, WRITER, ok=True)
    assert tools.run("file_operations_reader", source).error != "FILE_NOT_FOUND"


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match="from 0 to 1"):
        simulation(rate)
