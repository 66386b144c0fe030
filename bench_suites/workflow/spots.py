"""The places where a flawed plan differs from the sound one, and the plan that a model followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench_suites.workflow.simulation import MALFORMED_CALL, UNKNOWN_TOOL
from bench_suites.workflow.steps import asked, effective, sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_suites.workflow.episode import Call
    from bench_suites.workflow.plan import Plan, PlanStep

Followed = Literal["given", "sound"] | None
"""The plan that the model followed at a spot; None if it followed neither, for example because it
did not reach the spot."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The calls of a model. First calls show which plan it followed; later calls show corrections.

    Attributes:
        first: The first well-formed call of each known tool, in order.
        calls: All well-formed calls of known tools.
        is_over: Whether the model made a call and then ended the episode itself.
    """

    first: Mapping[str, Call]
    calls: Sequence[Call]
    is_over: bool

    @classmethod
    def of(cls, calls: Sequence[Call], *, is_over: bool) -> Tried:
        """Select the calls that show which plan was followed, from all calls of a model."""
        formed = [call for call in calls if call.error not in {UNKNOWN_TOOL, MALFORMED_CALL}]
        first: dict[str, Call] = {}
        for call in formed:
            first.setdefault(call.tool, call)
        return cls(first, formed, is_over and bool(formed))

    def earlier(self, *tools: str) -> str | None:
        """The tool among these that was called first; None if the model did not call any."""
        return next((tool for tool in self.first if tool in tools), None)


@dataclass(frozen=True, slots=True)
class Left:
    """A step is missing in the given plan.

    Attributes:
        builds_on_it: Tools that need the step, directly or not. A model that calls one of them
            first has skipped the step; other steps may come before or after it.
        later: Tools that come after it in the sound plan.
    """

    tool: str
    builds_on_it: frozenset[str]
    later: frozenset[str]

    def followed(self, tried: Tried) -> Followed:
        """The plan that the model followed."""
        first = tried.earlier(self.tool, *self.builds_on_it)
        if first is not None:
            return "sound" if first == self.tool else "given"
        return "given" if tried.is_over or self.later & tried.first.keys() else None


@dataclass(frozen=True, slots=True)
class FirstOfTwo:
    """The two plans call different tools first.

    This happens if a step has another tool, or comes before a step that it needs.
    """

    given: str
    sound: str

    def followed(self, tried: Tried) -> Followed:
        """The plan that the model followed."""
        first = tried.earlier(self.given, self.sound)
        if first is None:
            return None
        return "sound" if first == self.sound else "given"


@dataclass(frozen=True, slots=True)
class Doubled:
    """The given plan contains a step more than once."""

    tool: str

    def followed(self, tried: Tried) -> Followed:
        """The plan that the model followed.

        A second call after a failure shows nothing: it may follow the plan or be a retry.
        """
        if self.tool not in tried.first:
            return None
        after = tried.calls[tried.calls.index(tried.first[self.tool]) + 1 :]
        if any(call.tool == self.tool for call in after):
            return "given" if tried.first[self.tool].ok else None
        return "sound" if after or tried.is_over else None


@dataclass(frozen=True, slots=True)
class Changed:
    """A step has different arguments in the given plan.

    If a plan gives a parameter two values, a call with either value follows it.
    """

    given: PlanStep
    sound: PlanStep

    def followed(self, tried: Tried) -> Followed:
        """The plan that the model followed."""
        tool = self.sound.tool
        if tool not in tried.first:
            return None
        tried_with = sent(tried.first[tool])
        sound, given = asked(self.sound), _readings(self.given)
        apart = [
            name
            for name in {*sound, *(name for one in given for name in one)}
            if any(one.get(name) != sound.get(name) for one in given)
        ]
        if all(tried_with.get(name) == sound.get(name) for name in apart):
            return "sound"
        obeyed = all(tried_with.get(name) in [one.get(name) for one in given] for name in apart)
        return "given" if obeyed else None


Spot = Left | FirstOfTwo | Doubled | Changed


def spots(sound: Plan, given: Plan) -> tuple[Spot, ...]:
    """The places where following the given plan differs from following the sound plan.

    Differences in wording are not included: calls do not show whether a model followed them.
    """
    return tuple(_spots(sound, given))


def followed(found: Sequence[Spot], calls: Sequence[Call], *, is_over: bool) -> tuple[float, float]:
    """The shares of spots at which the model followed the given plan and the sound plan, 0 to 1.

    Args:
        found: One or more spots.
        calls: All calls, in order.
        is_over: Whether the model itself ended the episode, with or without saying so.
    """
    tried = Tried.of(calls, is_over=is_over)
    whom = [spot.followed(tried) for spot in found]
    return whom.count("given") / len(whom), whom.count("sound") / len(whom)


def _spots(sound: Plan, given: Plan) -> Iterator[Spot]:
    steps = {step.tool: step for step in given.steps}
    is_in_place = len(sound.steps) == len(given.steps)
    for at, step in enumerate(sound.steps):
        if step.tool not in steps:
            stands_there = given.tools[at] if is_in_place else None
            if stands_there is not None and stands_there not in sound.tools:
                yield FirstOfTwo(stands_there, step.tool)
            else:
                yield Left(
                    step.tool, _builds_on(step.tool, sound), frozenset(sound.tools[at + 1 :])
                )
            continue
        if given.tools.count(step.tool) > 1:
            yield Doubled(step.tool)
        if any(told != asked(step) for told in _readings(steps[step.tool])):
            yield Changed(steps[step.tool], step)
        place = given.tools.index(step.tool)
        for need in step.needs:
            if need in steps and place < given.tools.index(need):
                yield FirstOfTwo(step.tool, need)


def _readings(step: PlanStep) -> tuple[dict[str, object], ...]:
    """A step's arguments with the first value of each name, and with the last value."""
    return effective(step.tool, dict(reversed(step.parameters))), asked(step)


def _builds_on(tool: str, plan: Plan) -> frozenset[str]:
    found: set[str] = set()
    for step in plan.steps:
        if found & {*step.needs} or tool in step.needs:
            found.add(step.tool)
    return frozenset(found)
