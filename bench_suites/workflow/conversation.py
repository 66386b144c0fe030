"""The state of one episode: takes each reply, and returns the answer to it or a reason to stop."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING

from bench_suites.workflow.episode import Call, StopReason
from bench_suites.workflow.feedback import (
    CUT,
    HELP,
    ONE_CALL_PER_MESSAGE,
    describe_result,
    describe_search,
    describe_tool,
)
from bench_suites.workflow.simulation import ToolSimulation
from bench_suites.workflow.steps import work
from bench_suites.workflow.tool import tool_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.workflow.reply_parser import Action, ParsedReply
    from bench_suites.workflow.task import Task

MOST_LOOKUPS = 6
MOST_FAILURES = 5
MOST_REPEATS = 5
MOST_SUCCESSES = 3
MOST_SILENT = 3
EXTRA_TURNS = 2
LONGEST_ARGUMENTS_CHARACTERS = 2000

_WORD = r"[*_`]*+TASK\\?_COMPLETED?[*_`.!]*"
_END = r"(?<!\d)[.!?。！？][*_)]*+[ \t]*"  # noqa: RUF001 - not the full stop of a list's number
_ALONE = re.compile(
    # Ignore an empty line after a code fence, and after a word, a colon or a comma: they announce
    # what follows.
    rf"(?:\A|[^\w:,：，`\s][ \t]*\n[ \t]*\n|{_END}\n)\s*(?:#+ )?{_WORD}[ \t]*(?:\n|\Z)"  # noqa: RUF001
    rf"|{_END}{_WORD}\s*\Z",
    re.IGNORECASE,
)


class Conversation:
    """The course of an episode so far. Uses no model and no clock; the seed decides all draws."""

    def __init__(self, task: Task, *, tool_success_rate: float, seed: int) -> None:
        """Begin an episode.

        Raises:
            ValueError: The rate is not from 0 to 1.
        """
        self._plan = task.plan
        self._tools = ToolSimulation(tool_success_rate, seed, task.inputs)
        self._n_silent = 0
        self._n_extra = 0
        self.calls: list[Call] = []
        self.n_turns = 0
        self.n_searches = 0
        self.n_infos = 0
        self.n_helped = 0
        self.n_unclosed = 0
        self.n_cut = 0
        self.completed = False

    def take(self, parsed: ParsedReply, *, last: bool) -> tuple[str, StopReason | None]:
        """Run the actions of a reply.

        Args:
            parsed: The reply.
            last: Whether this is the model's last turn.

        Returns:
            The answer to the model, and the reason why the episode ends, or None if it continues.
        """
        was_done = self._is_done()
        self.n_unclosed += parsed.n_unclosed
        self.n_cut += parsed.is_cut
        answers = self._answers(parsed.actions)
        self.n_turns += 1
        self._n_extra += was_done
        says_done = not parsed.is_cut and says_it_is_done(parsed.text)
        # Any two of these three facts end the episode: everything is done, the message contains the
        # keyword, the message contains no action.
        if says_done + self._is_done() + (not parsed.actions) > 1:
            self.completed = says_done
            return "", "completed" if says_done else "done"
        if not parsed.actions:
            answers.append(CUT if parsed.is_cut else HELP)
            self.n_helped += 1
            self._n_silent += 1
        else:
            self._n_silent = 0
        return "\n\n".join(answers), self._stop(parsed, last=last)

    def _answers(self, actions: tuple[Action, ...]) -> list[str]:
        answers: list[str] = []
        calls = [action for action in actions if action.kind == "call"]
        meant = _meant(calls)
        n_lookups = 0
        for action in actions:
            if action.kind == "call":
                if action is meant:
                    answers.append(self._call(action))
                continue
            n_lookups += 1
            if n_lookups > MOST_LOOKUPS:
                continue
            if action.kind == "search":
                self.n_searches += 1
                answers.append(describe_search(action.text))
            else:
                self.n_infos += 1
                answers.append(describe_tool(action.text))
        if len(calls) > 1:
            answers.append(ONE_CALL_PER_MESSAGE)
        return answers

    def _call(self, action: Action) -> str:
        result = self._tools.run(action.text, action.arguments)
        arguments = json.dumps(action.arguments)
        if len(arguments) > LONGEST_ARGUMENTS_CHARACTERS:
            arguments = json.dumps({"too_long": len(arguments)})
        self.calls.append(Call(self.n_turns, result.tool, arguments, result.ok, result.error))
        return describe_result(result, sum(call.ok for call in self.calls))

    def _is_done(self) -> bool:
        return len(work(self._plan, self.calls).done) == len(self._plan.steps)

    def _stop(self, parsed: ParsedReply, *, last: bool) -> StopReason | None:
        if self._n_silent >= MOST_SILENT or (last and self._n_silent):
            return "cut" if parsed.is_cut else "refusal" if parsed.is_refusal else "silent"
        if self._n_extra >= EXTRA_TURNS:
            return "done"
        if any(action.kind == "call" for action in parsed.actions):
            recent = self.calls[-MOST_FAILURES:]
            if len(recent) == MOST_FAILURES and not any(call.ok for call in recent):
                return "failing"
            recent = self.calls[-MOST_REPEATS:]
            n_succeeded = sum(call.ok for call in recent)
            if len({call.tool for call in recent}) == 1 and n_succeeded >= MOST_SUCCESSES:
                return "repeating"
        return "max_turns" if last else None


def _meant(calls: Sequence[Action]) -> Action | None:
    """The call of a message to run: the first call of a known tool.

    If no tool is known, it is the first call with a name and arguments. If no call has a name and
    arguments, it is the first call, and the model gets its error. If prose contains an opening tag
    ("I write <tool_call> tags"), the next word is parsed as a call.
    """
    known = (call for call in calls if tool_named(call.text) is not None)
    whole = (call for call in calls if call.text and call.arguments)
    return next(itertools.chain(known, whole, calls), None)


def says_it_is_done(text: str) -> bool:
    """Whether a message contains `TASK_COMPLETED` as a separate sentence.

    It must be alone on its line or the last word of the message. Before it there must be nothing,
    the end of a sentence, or an empty line after a finished sentence. So the keyword does not count
    in a list, in quotes, or in a sentence that announces or denies it, in any language. In doubt,
    the model is asked to continue: this costs one turn, but not the episode.
    """
    return _ALONE.search(text) is not None
