import msgspec
import pytest

from bench_suites.workflow import TASKS, flaw, score
from bench_suites.workflow.conversation import says_it_is_done
from bench_suites.workflow.feedback import CUT, HELP
from tests.unit.workflow_models import Native, Said, Scripted, call, calls_of, run

TASK = TASKS.by_id["pipeline-006"]
GOOD = calls_of(TASK.plan)
CERTAIN = {"tool_success_rate": 1.0}


def lucky(task=TASK, **options):
    """A seed with which every valid call of the plan succeeds at the first try."""
    for seed in range(200):
        episode = run(Scripted(calls_of(task.plan)), task, seed=seed, **CERTAIN)
        if all(c.ok for c in episode.calls):
            return seed
    raise AssertionError


SEED = lucky()


def test_episode_of_a_followed_plan_is_solved_and_ends_when_the_model_reports_completion():
    episode = run(Scripted(GOOD), TASK, plan=TASK.plan, seed=SEED, **CERTAIN)
    assert episode.stop == "completed"
    assert episode.completed
    assert episode.n_turns == len(GOOD) + 1
    assert episode.given == TASK.plan
    assert episode.sound == episode.succeeded == TASK.required
    assert score(episode).outcome == "solved"


def test_episode_is_the_same_with_closed_and_unclosed_tags():
    closed = run(Scripted(GOOD), TASK, seed=SEED)
    unclosed = run(Scripted([text.removesuffix("</tool_call>") for text in GOOD]), TASK, seed=SEED)
    assert closed.calls == unclosed.calls
    assert (closed.n_unclosed, unclosed.n_unclosed) == (0, len(unclosed.calls))
    first, second = score(closed), score(unclosed)
    assert first.outcome == second.outcome
    assert first.scores["final"] == second.scores["final"]


def test_episode_runs_native_calls_and_shows_them_in_the_history():
    step = TASK.plan.steps[0]
    arguments = msgspec.json.encode(dict(step.parameters)).decode()
    seen = []

    class Model:
        async def chat(self, messages, /):
            seen.append([dict(message) for message in messages])
            calls = (Native(step.tool, arguments),) if len(seen) == 1 else ()
            return Said("" if calls else "TASK_COMPLETED", tool_calls=calls)

    episode = run(Model(), TASK, seed=SEED, **CERTAIN)
    assert [c.tool for c in episode.calls] == [step.tool]
    assert seen[1][2]["content"].startswith(f"<tool_call>{step.tool} ")
    assert all(message["content"] for message in seen[1])


def test_episode_does_not_send_reasoning_back_as_the_answer():
    heard = []
    script = [
        Said(f"<think>Which one?</think>{GOOD[0]}"),
        Said("", reasoning=f"This one: {GOOD[1]}"),
        Said("", reasoning="Let me see", finish_reason="length"),
        Said("<think>Let me see", finish_reason="length"),
    ]

    class Model(Scripted):
        async def chat(self, messages, /):
            heard.append([one["content"] for one in messages if one["role"] == "assistant"])
            return await super().chat(messages)

    llm = Model(script)
    episode = run(llm, TASK, seed=SEED, **CERTAIN)
    assert heard[4] == [GOOD[0], GOOD[1], "(no text)", "(no text)"]
    assert llm.heard[3] == llm.heard[4] == CUT
    assert episode.n_cut == 2


def test_episode_ends_with_the_work_after_any_last_message():
    for last in ("Everything has been carried out.", "", Said("I hav", finish_reason="length")):
        episode = run(Scripted([*GOOD, last]), TASK, seed=SEED, **CERTAIN)
        assert (episode.stop, episode.n_turns) == ("done", len(GOOD) + 1)
        assert not episode.completed


def test_episode_answers_an_unknown_tool_with_an_error_without_guessing():
    llm = Scripted([call("parser", source="x"), "<tool_call>the network_poster please</tool_call>"])
    episode = run(llm, TASK)
    assert [(c.tool, c.ok, c.error) for c in episode.calls] == [
        ("parser", False, "UNKNOWN_TOOL"),
        ("the", False, "UNKNOWN_TOOL"),
    ]
    assert "Result of parser: failed (UNKNOWN_TOOL)" in llm.heard[1]


def test_episode_tells_a_model_what_is_wrong_with_its_arguments():
    llm = Scripted([call("data_processing_parser", source="data/nowhere.csv", format="csv")])
    episode = run(llm, TASK)
    assert episode.calls[0].error == "INVALID_INPUT"
    assert 'there is nothing at "data/nowhere.csv"' in llm.heard[1]


def test_episode_runs_one_call_per_message_and_answers_every_lookup():
    text = (
        "<tool_search>compress</tool_search><tool_info>network_poster</tool_info>"
        + GOOD[0]
        + GOOD[1]
    )
    llm = Scripted([text])
    episode = run(llm, TASK, seed=SEED, **CERTAIN)
    assert [c.tool for c in episode.calls] == [TASK.required[0]]
    assert (episode.n_searches, episode.n_infos) == (1, 1)
    assert 'Tools for "compress":' in llm.heard[1]
    assert "Tool network_poster:" in llm.heard[1]
    assert "one tool_call per message" in llm.heard[1]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("I would write <tool_call> tags later. Then: {0}", 0),
        ("Each <tool_call> has a name.\nA <tool_call>\nis one line.\n{0}{1}", 0),
        ("The form is <tool_call>name {{json}}</tool_call>. So: {0}", 0),
        ("I open `<tool_call>` and write {1}", 1),
        ("{1} - that was the <tool_call> for {0}", 1),
        ("<tool_call>data_processing_parser source=x</tool_call>{0}", None),
    ],
)
def test_episode_runs_the_intended_call_if_prose_contains_the_tag(text, index):
    llm = Scripted([text.format(*GOOD)])
    episode = run(llm, TASK, seed=SEED, **CERTAIN)
    (only,) = episode.calls
    if index is None:
        assert (only.tool, only.error) == ("data_processing_parser", "MALFORMED_CALL")
    else:
        step = TASK.plan.steps[index]
        assert only.tool == step.tool
        assert msgspec.json.decode(only.arguments) == msgspec.to_builtins(dict(step.parameters))
    assert "one tool_call per message" in llm.heard[1]


def test_help_is_given_counted_and_ends_a_silent_episode():
    llm = Scripted(["Let me think.", GOOD[0], "Hm.", "Well.", "So."])
    episode = run(llm, TASK, seed=SEED, **CERTAIN)
    assert llm.heard[1] == HELP
    assert episode.n_helped == 4
    assert episode.stop == "silent"
    scores = score(episode).scores
    assert (scores["assisted"], scores["assisted_turns"]) == (1.0, 4.0)


def test_episode_ends_when_the_work_is_done_although_the_model_continues():
    more = [call("utility_logger", message="still here")] * 5
    episode = run(Scripted([*GOOD, *more]), TASK, seed=SEED, **CERTAIN)
    assert episode.stop == "done"
    assert episode.n_turns == len(GOOD) + 2
    assert not episode.completed
    # Two calls that the task does not require.
    assert (score(episode).outcome, score(episode).kind) == ("partial", "needless_calls")


def test_episode_ends_after_five_failures_in_a_row():
    episode = run(Scripted([call("nothing")] * 10), TASK)
    assert (episode.stop, episode.n_turns) == ("failing", 5)


def test_episode_continues_after_a_premature_report_of_completion():
    script = [GOOD[0] + "\nTASK_COMPLETED", *GOOD[1:]]
    episode = run(Scripted(script), TASK, seed=SEED, **CERTAIN)
    assert episode.succeeded == TASK.required


def test_episode_does_not_catch_a_failed_request():
    class Broken:
        async def chat(self, messages, /):
            msg = "gone"
            raise ConnectionError(msg)

    with pytest.raises(ConnectionError, match="gone"):
        run(Broken(), TASK)


def test_episode_shows_the_given_plan_and_records_both_plans():
    spoilt = flaw("missing_step").apply(TASK.plan)
    llm = Scripted([])
    episode = run(llm, TASK, plan=spoilt)
    assert spoilt.rendered() in llm.heard[0]
    assert (episode.given, episode.sound) == (spoilt, TASK.required)
    assert episode.prompt_type == "optimal"


@pytest.mark.parametrize(
    "text",
    [
        "TASK_COMPLETED",
        "  **TASK_COMPLETED**\n",
        "`TASK_COMPLETED`",
        "## TASK_COMPLETED",
        "TASK\\_COMPLETED.",
        "task_completed!",
        "All steps are through. TASK_COMPLETED",
        "All steps are through.\nTASK_COMPLETED\nGoodbye.",
        "Is anything left? No. (I looked.) TASK_COMPLETED.",
        "全部步骤已完成。TASK_COMPLETED",
        "| step | state |\n| --- | --- |\n| 1 | done |\n\nTASK_COMPLETED",
        "TASK_COMPLETED\n\nIf you need anything else, tell me.",
    ],
)
def test_report_of_completion_is_recognised(text):
    assert says_it_is_done(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The task is complete.",
        "I have completed all of the steps.",
        "任务已完成。",
        "I will answer TASK_COMPLETED once everything has run.",
        "My last word will be `TASK_COMPLETED`.",
        "Finally, I will output TASK_COMPLETED",
        "Am Ende schreibe ich TASK_COMPLETED.",
        "最后我会输出TASK_COMPLETED",
        "I cannot say TASK_COMPLETED",
        "TASK_COMPLETED if everything is done.",
        "TASK_COMPLETED: no",
        "TASK_COMPLETED?\nNo.",
        "The rules say: answer TASK_COMPLETED.",
        'The rules say. "TASK_COMPLETED"',
        "I read:\n\n> When all is done.\n> TASK_COMPLETED",
        "My last message will be:\n\nTASK_COMPLETED\n\nI begin.",
        "My last message will be:\n```\nTASK_COMPLETED\n```\n",
        "1. Parse.\n2. Aggregate.\n3. TASK_COMPLETED",
        "1. Parse. 2. Aggregate. 3. TASK_COMPLETED",
        "- Parse.\n- TASK_COMPLETED",
        "* Parse.\n* **TASK_COMPLETED**",
        "Plan:\nparse\naggregate\nTASK_COMPLETED",
        "parse → TASK_COMPLETED",
        "Step 3: TASK_COMPLETED",
    ],
)
def test_mention_of_completion_is_not_a_report(text):
    assert not says_it_is_done(text)


def test_episode_ends_when_one_tool_succeeds_repeatedly():
    episode = run(Scripted([GOOD[0]] * 10), TASK, seed=SEED, **CERTAIN)
    assert episode.stop == "repeating"
    assert episode.succeeded == (TASK.required[0],) * 3
