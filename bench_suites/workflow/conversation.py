"""One episode's bookkeeping: a reply goes in, the answer to it and a reason to stop come out."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING

from bench_suites.workflow.episode import Call, StopReason
from bench_suites.workflow.feedback import (
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
_LOOK_BACK_CHARACTERS = 80

_COMPLETED = re.compile(
    r"TASK[_ ]COMPLETED?\b|\b(?:(?:task|workflow|job|everything)|all (?:steps|tasks))"
    r"(?: is| are| has been| have been| was)?(?: now| successfully)* "
    r"(?:complete|completed|finished|done)\b"
    r"|\bI(?:['\u2019]ve| have)(?: now| successfully)* (?:completed|finished|done) "
    r"(?:the|all|every)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"(?:\b(?:not|cannot|never|until|once|when|after|before|if)|n['\u2019]t)\b[^.!?\n]{0,60}$"
    # A part of the work, or the word itself: "I will answer TASK_COMPLETED at the end".
    r"|\b(?:first|second|third|next|previous|each|one) $"
    r"|\b(?:will|must|should|to|say:?|['\u2019]ll) (?:answer|say|reply|write|respond|send)"
    r"(?: with)?[ :\"'`*]*$",
    re.IGNORECASE,
)
# What follows is no longer under the negation: "there isn't anything left, so the task is done".
_CONCLUSION = re.compile(r"[,;] (?:so|but|therefore|hence) ", re.IGNORECASE)
# On the same line only: after a blank line the next sentence begins ("If you need more, ...").
_TAKEN_BACK = re.compile(
    r"[ \t\"'`*_)\u201d\u2019]*\b(?:once|when|after|if)\b|[ \t]*[:?]+[ \t]*no\b|[^.!\n]{0,60}\?",
    re.IGNORECASE,
)


class Conversation:
    """What has happened so far in an episode: no model, no clock, all chance from the seed."""

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
        self.completed = False

    def take(self, parsed: ParsedReply, *, last: bool) -> tuple[str, StopReason | None]:
        """Do what a reply asks for.

        Args:
            parsed: The reply.
            last: Whether the model has no further turn.

        Returns:
            The answer to the model, and why the episode ends, or None if it goes on.
        """
        was_done = self._is_done()
        self.n_unclosed += parsed.n_unclosed
        answers = self._answers(parsed.actions)
        self.n_turns += 1
        self._n_extra += was_done
        called = any(action.kind == "call" for action in parsed.actions)
        says_completed = says_it_is_done(parsed.text)
        # A message that acts and says it is done has ended only if its action leaves nothing to do.
        if says_completed and (not parsed.actions or self._is_done()):
            self.completed = True
            return "", "completed"
        if not parsed.actions:
            answers.append(HELP)
            self.n_helped += 1
            self._n_silent += 1
        else:
            self._n_silent = 0
        stop = self._stop(called=called)
        return "\n\n".join(answers), "max_turns" if stop is None and last else stop

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

    def _stop(self, *, called: bool) -> StopReason | None:
        if self._n_silent >= MOST_SILENT:
            return "silent"
        if self._n_extra >= EXTRA_TURNS:
            return "done"
        if not called:
            return None
        recent = self.calls[-MOST_FAILURES:]
        if len(recent) == MOST_FAILURES and not any(call.ok for call in recent):
            return "failing"
        recent = self.calls[-MOST_REPEATS:]
        if len({call.tool for call in recent}) == 1 and sum(c.ok for c in recent) >= MOST_SUCCESSES:
            return "repeating"
        return None


def _meant(calls: Sequence[Action]) -> Action | None:
    """The one of a message's calls that is run: the first of a tool that there is.

    Else the first with a name and arguments, else the first, and its error is told: an opening tag
    that prose speaks of ("I write <tool_call> tags") reads as a call of the next word.
    """
    known = (call for call in calls if tool_named(call.text) is not None)
    whole = (call for call in calls if call.text and call.arguments)
    return next(itertools.chain(known, whole, calls), None)


def says_it_is_done(text: str) -> bool:
    """Whether a message says that the work is done.

    "Once the task is done", "I can't say the task is done" and "TASK_COMPLETED when all has run" do
    not: in doubt the model is asked to go on, which costs it a turn and not the episode.
    """
    for found in _COMPLETED.finditer(text):
        before = text[max(0, found.start() - _LOOK_BACK_CHARACTERS) : found.start()]
        clause = _CONCLUSION.split(before)[-1]
        if not _NEGATED.search(clause) and not _TAKEN_BACK.match(text, found.end()):
            return True
    return False
