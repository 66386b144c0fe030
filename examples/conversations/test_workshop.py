"""An agent at the desk of a bicycle workshop, a simulated customer, and the bookings they leave.

pytest examples/conversations --ultrapar-pool examples/conversations/pool.toml
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_ultrapar import Grader, Llm, ToolCall, cases, prefetch

POLICY = "You keep the bookings of a workshop. Change a booking only for the one who made it."
CUSTOMER = "You are {name}, a customer. You want: {wishes} Say DONE when you have it or give up."
MOST_TURNS = 5


@dataclass
class Workshop:
    """Bookings. Its methods are the agent's tools; the model reads their errors."""

    days: dict[str, str] = field(
        default_factory=lambda: {"b1": "monday", "b2": "friday", "b3": "monday", "b4": "friday"}
    )
    names: dict[str, str] = field(
        default_factory=lambda: {"b1": "Ada", "b2": "Bo", "b3": "Cy", "b4": "Dee"}
    )

    def bookings_of(self, name: str) -> list[str]:
        """Return the numbers of a customer's bookings."""
        return [booking for booking in self.days if self.names[booking] == name]

    def move(self, booking: str, day: str) -> str:
        """Move a booking to another day; each day has room for two."""
        if list(self.days.values()).count(day) > 1:
            message = f"{day} is full"
            raise ValueError(message)
        self.days[booking] = day
        return f"{booking} is on {day} now"

    def cancel(self, booking: str) -> str:
        """Cancel a booking."""
        del self.days[booking]
        return f"{booking} is cancelled"


def offered(tool: Callable[..., object]) -> dict[str, Any]:
    """Describe a function for the API. All arguments are strings."""
    names = list(inspect.signature(tool).parameters)
    parameters = {"type": "object", "required": names}
    parameters["properties"] = {name: {"type": "string"} for name in names}
    described = {"name": tool.__name__, "description": tool.__doc__, "parameters": parameters}
    return {"type": "function", "function": described}


def result_of(call: ToolCall, tools: dict[str, Callable[..., object]]) -> dict[str, str]:
    """Run a tool call, and return a message with its result."""
    try:
        result = tools[call.name](**json.loads(call.arguments))
    except (LookupError, TypeError, ValueError) as error:
        result = {"error": str(error)}
    return {"role": "tool", "tool_call_id": call.call_id, "content": json.dumps(result)}


@dataclass
class Visit:
    """The state after a visit."""

    days: dict[str, str]
    n_calls: int
    ended: bool


@prefetch
async def visit(llm: Llm, name: str, wishes: list[str]) -> Visit:
    """Let the customer and the agent talk until the customer is done."""
    workshop, customer, n_calls = Workshop(), llm.role("customer"), 0
    tools = {one.__name__: one for one in (workshop.bookings_of, workshop.move, workshop.cancel)}
    wanted = CUSTOMER.format(name=name, wishes=" ".join(wishes))
    heard = [{"role": "user", "content": "How can I help you?"}]
    talk = [{"role": "system", "content": f"{POLICY} You speak with {name}."}]
    for _ in range(MOST_TURNS):
        wish = await customer.chat(heard, system=wanted)
        if "DONE" in wish.text:
            return Visit(workshop.days, n_calls, ended=True)
        talk.append({"role": "user", "content": wish.text})
        answer = await llm.chat(talk, tools=[offered(one) for one in tools.values()])
        while answer.tool_calls and n_calls < 3 * MOST_TURNS:
            n_calls += len(answer.tool_calls)
            talk += [answer.message, *(result_of(call, tools) for call in answer.tool_calls)]
            answer = await llm.chat(talk, tools=[offered(one) for one in tools.values()])
        talk.append(answer.message)
        heard += [wish.message, {"role": "user", "content": answer.text}]
    return Visit(workshop.days, n_calls, ended=False)


TASKS = cases("tasks.jsonl", "name", "wishes", "expected", id="id", meta=("kind",))


@pytest.mark.ultrapar(summary=("model", "meta.kind"))
@pytest.mark.parametrize(("name", "wishes", "expected"), TASKS)
def test_bookings(visit: Visit, expected: dict[str, str | None], grade: Grader) -> None:
    """Compare the bookings with `expected`, which lists the changes; None means cancelled."""
    wanted = {key: day for key, day in (Workshop().days | expected).items() if day}
    reason = None if visit.days == wanted else f"bookings are {visit.days}, not {wanted}"
    labels = {"ended": "yes" if visit.ended else "no"}
    grade(visit.days == wanted, reason, labels=labels, calls=visit.n_calls)
