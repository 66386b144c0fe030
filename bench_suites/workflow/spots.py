"""Where a flawed plan says something else than the sound one, and whom a model followed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench_suites.workflow.steps import arguments_of, effective

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_suites.workflow.episode import Call
    from bench_suites.workflow.plan import Plan, PlanStep

Followed = Literal["given", "sound"] | None
"""The plan that was followed at a spot; None for neither, as where the model did not get there."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a model tried: first calls tell whom it followed, later ones what it learnt.

    Attributes:
        first: The first call of each tool, in order.
        n_after_success: How often each tool was called after its first success; tools without a
            success are not in it.
    """

    first: Mapping[str, Call]
    n_after_success: Mapping[str, int]

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Tried:
        """What a model's calls show."""
        first: dict[str, Call] = {}
        n_after: dict[str, int] = {}
        for call in calls:
            first.setdefault(call.tool, call)
            if call.tool in n_after:
                n_after[call.tool] += 1
            elif call.ok:
                n_after[call.tool] = 0
        return cls(first, n_after)

    def is_before(self, one: str, other: str) -> bool:
        """Whether a tool was called, and the other one not before it."""
        names = list(self.first)
        return one in names and (other not in names or names.index(one) < names.index(other))


@dataclass(frozen=True, slots=True)
class Left:
    """A step is not in the given plan.

    Attributes:
        later: Tools that come after it in the sound plan: where one of them was called and the step
            was not, it was passed over.
    """

    tool: str
    later: frozenset[str]

    def followed(self, tried: Tried, *, claimed: bool) -> Followed:
        """Whom the model followed; `claimed` is whether it said that all was done."""
        if self.tool in tried.first:
            return "sound"
        return "given" if claimed or self.later & tried.first.keys() else None


@dataclass(frozen=True, slots=True)
class Added:
    """The given plan has a step that the task does not need."""

    tool: str

    def followed(self, tried: Tried, *, claimed: bool) -> Followed:
        """Whom the model followed; `claimed` is whether it said that all was done."""
        if self.tool in tried.first:
            return "given"
        return "sound" if claimed or tried.first else None


@dataclass(frozen=True, slots=True)
class Doubled:
    """The given plan has a step more than once."""

    tool: str

    def followed(self, tried: Tried, *, claimed: bool) -> Followed:
        """Whom the model followed; `claimed` is whether it said that all was done."""
        del claimed
        if self.tool not in tried.n_after_success:
            return None
        return "given" if tried.n_after_success[self.tool] else "sound"


@dataclass(frozen=True, slots=True)
class Changed:
    """A step has other arguments in the given plan; both say what they are."""

    given: PlanStep
    sound: PlanStep

    def followed(self, tried: Tried, *, claimed: bool) -> Followed:
        """Whom the model followed; `claimed` is whether it said that all was done."""
        del claimed
        tool = self.sound.tool
        if tool not in tried.first:
            return None
        sent = effective(tool, arguments_of(tried.first[tool]))
        given, sound = (effective(tool, dict(one.parameters)) for one in (self.given, self.sound))
        apart = [name for name in {*given, *sound} if given.get(name) != sound.get(name)]
        if all(sent.get(name) == sound.get(name) for name in apart):
            return "sound"
        return "given" if all(sent.get(name) == given.get(name) for name in apart) else None


@dataclass(frozen=True, slots=True)
class Turned:
    """The given plan has a step before one that it needs."""

    tool: str
    need: str

    def followed(self, tried: Tried, *, claimed: bool) -> Followed:
        """Whom the model followed; `claimed` is whether it said that all was done."""
        del claimed
        if tried.is_before(self.tool, self.need):
            return "given"
        return "sound" if self.need in tried.first else None


Spot = Left | Added | Doubled | Changed | Turned


def spots(sound: Plan, given: Plan) -> tuple[Spot, ...]:
    """Where who does as the given plan says does something else than the sound plan asks for.

    Differences of words alone are none: nobody can see whether they were heeded.
    """
    return tuple(_spots(sound, given))


def followed(found: Sequence[Spot], calls: Sequence[Call], *, claimed: bool) -> tuple[float, float]:
    """Shares of the spots at which the given plan was followed, and the sound one, each 0 to 1."""
    tried = Tried.of(calls)
    whom = [spot.followed(tried, claimed=claimed) for spot in found]
    return whom.count("given") / len(whom), whom.count("sound") / len(whom)


def _spots(sound: Plan, given: Plan) -> Iterator[Spot]:
    steps = {step.tool: step for step in given.steps}
    for at, step in enumerate(sound.steps):
        if step.tool not in steps:
            yield Left(step.tool, frozenset(sound.tools[at + 1 :]))
            continue
        if given.tools.count(step.tool) > 1:
            yield Doubled(step.tool)
        told, asked = (
            effective(step.tool, dict(one.parameters)) for one in (steps[step.tool], step)
        )
        if told != asked:
            yield Changed(steps[step.tool], step)
        place = given.tools.index(step.tool)
        for need in step.needs:
            if need in steps and place < given.tools.index(need):
                yield Turned(step.tool, need)
    for tool in dict.fromkeys(given.tools):
        if tool not in sound.tools:
            yield Added(tool)
