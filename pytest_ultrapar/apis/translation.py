"""Chat completions taken apart, for APIs that say the same otherwise.

`llm.chat()` takes messages and parameters as chat completions have them. An API of another shape
writes them as its own; what it has no counterpart for is refused by its name before anything is
sent, since leaving it out would ask for something else. What chat completions do not know is the
API's own, and goes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from pytest_ultrapar.apis.reply import NATIVE, Message, Messages
from pytest_ultrapar.apis.sanitise import part_of

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "developer": (),
    "user": (),
    "assistant": ("tool_calls", "refusal"),
    # The name is not sent: the call has said which function it was.
    "tool": ("tool_call_id", "name"),
}
"""By role, what a message may hold beside it and its content."""
NO_COUNTERPART: dict[str, Any] = {"n": 1, "modalities": ["text"]} | dict.fromkeys(
    ("logit_bias", "functions", "function_call", "audio", "prediction", "web_search_options")
)
"""What no other API has."""
OF_OPENAI = NO_COUNTERPART | {"logprobs": False, "top_logprobs": 0, "store": False}
OF_OPENAI |= dict.fromkeys(
    ("verbosity", "reasoning_effort", "prompt_cache_key", "safety_identifier")
)
"""What no other provider has."""


class Translator(NamedTuple):
    """Names the API in what it refuses.

    Attributes:
        api: As `pool.toml` has it.
        no_counterpart: The parameters of chat completions that it has nothing for, each with the
            value that asks for nothing: with that, or None, it is left out.
    """

    api: str
    no_counterpart: Mapping[str, Any]

    def refuse(self, what: str) -> NoReturn:
        """Say what of a call has no counterpart.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f'llm.chat() got {what}, which api = "{self.api}" has no counterpart for')

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that ask for something, once all of them may.

        Raises:
            TypeError: One of them has no counterpart.
        """
        asked = {name: value for name, value in given.items() if value is not None}
        for name, nothing in self.no_counterpart.items():
            if name in asked and asked.pop(name) != nothing:
                self.refuse(
                    f"{name!r} (parameters = {{ {name} = false }} in pool.toml leaves it out)"
                )
        return asked

    def bound(self, parameters: dict[str, Any]) -> int | None:
        """Takes out of the parameters how long an answer may be, under its new or old name."""
        newer: int | None = parameters.pop("max_completion_tokens", None)
        older: int | None = parameters.pop("max_tokens", None)
        if newer is not None and older is not None:
            raise TypeError(
                "llm.chat() got max_tokens and max_completion_tokens: give only one of them"
            )
        return older if newer is None else newer

    def turns(self, messages: Messages) -> Iterator[tuple[str, Message, str]]:
        """Each message with its role before and its place behind it.

        Raises:
            TypeError: A role is unknown, or a message holds more than the role and the content and
                what is read of messages of that role.
        """
        for number, message in enumerate(messages):
            role: Any = message.get("role")
            place = f"messages[{number}]"
            if role not in _FIELDS:
                self.refuse(f"{place}.role {role!r}")
            known = {"role", "content", NATIVE, *_FIELDS[role]}
            for name, value in message.items():
                if name not in known and value is not None:
                    self.refuse(f"{place}.{name}")
            yield role, message, place

    def conversation(
        self,
        messages: Messages,
        made: Mapping[str, Callable[[Message, str], Any]],
        *,
        field: str = "content",
        own: str = "assistant",
    ) -> tuple[list[Any], list[dict[str, Any]]]:
        """What stands at the head as the system's, and the turns of the conversation.

        Args:
            messages: All of it.
            made: By role, makes the content of a message; `late` of what the system says in the
                midst.
            field: Of a turn, where that is.
            own: The API's word for the model's role.

        Raises:
            TypeError: As `turns`.
        """
        system: list[Any] = []
        turns: list[dict[str, Any]] = []
        before = ""
        for role, message, place in self.turns(messages):
            if role in {"system", "developer"} and not turns:
                system += made["system"](message, place)
            elif role == before == "tool":
                # Results in a row are answers to one turn of the model, and one turn themselves.
                turns[-1][field].append(made[role](message, place))
            elif role == "tool":
                turns.append({"role": "user", field: [made[role](message, place)]})
            elif role in {"user", "assistant"}:
                name = own if role == "assistant" else role
                turns.append({"role": name, field: made[role](message, place)})
            else:
                turns.append({"role": "system", field: made["late"](message, place)})
            before = role
        return system, turns

    def parts(self, message: Message, place: str) -> list[tuple[Mapping[str, Any], str]]:
        """The content as parts, each with its place: a text is one, no content is none.

        Raises:
            TypeError: It is neither a text nor a list of parts.
        """
        content = message.get("content")
        if content is None:
            return []
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list | tuple) or not all(
            isinstance(one, Mapping) for one in content
        ):
            raise TypeError(
                f"llm.chat() got {place}.content, which must be a text or a list of parts"
            )
        return [(part, f"{place}.content[{number}]") for number, part in enumerate(content)]

    def content(
        self, message: Message, place: str, part: Callable[[Mapping[str, Any], str], Any]
    ) -> str | list[Any]:
        """The content, of which `part` makes each part; a text stays one.

        Raises:
            TypeError: As `parts`.
        """
        if isinstance(text := message.get("content"), str):
            return text
        return [part(one, where) for one, where in self.parts(message, place)]

    def said(self, message: Message, place: str) -> str:
        """What the model said in a message of its own: its text, or its refusal.

        Raises:
            TypeError: It has parts of another kind.
        """
        texts: list[str] = []
        for part, where in self.parts(message, place):
            match part:
                case {"type": "text", "text": str(text)} | {
                    "type": "refusal",
                    "refusal": str(text),
                }:
                    texts.append(text)
                case _:
                    self.refuse(f"{where} of type {part.get('type')!r}")
        refusal = message.get("refusal")
        return "".join(texts) or (refusal if isinstance(refusal, str) else "")

    def calls(self, message: Message, place: str) -> Iterator[tuple[str, str, str]]:
        """Id, function and arguments of each tool call in a message.

        Raises:
            TypeError: One has another shape.
        """
        for number, call in enumerate(message.get("tool_calls") or ()):
            where = f"{place}.tool_calls[{number}]"
            match call:
                case {"function": {"name": str(name), "arguments": str(arguments)}}:
                    yield self.id_of(call.get("id"), f"{where}.id"), name, arguments
                case _:
                    self.refuse(f"{where} that calls no function")

    def id_of(self, given: object, place: str) -> str:
        """The id by which a call and its result find each other.

        Raises:
            TypeError: There is none.
        """
        if not isinstance(given, str) or not given:
            raise TypeError(
                f'llm.chat() needs {place} for api = "{self.api}": a text that is not empty'
            )
        return given

    def called(self, message: Message, place: str) -> str:
        """The id of the call of which a message has the result.

        Raises:
            TypeError: There is none.
        """
        return self.id_of(message.get("tool_call_id"), f"{place}.tool_call_id")

    def image(self, part: Mapping[str, Any], place: str) -> Image:
        """The image of a part of type `image_url`.

        Raises:
            TypeError: It is neither a data URL in base64 nor an address.
        """
        said: Any = part.get("image_url")
        url, detail = "", None
        if isinstance(said, str):
            url = said
        elif isinstance(said, Mapping):
            url, detail = str(said.get("url")), said.get("detail")
            for name in said.keys() - {"url", "detail"}:
                self.refuse(f"{place}.image_url.{name}")
        head, comma, content = url.partition(",")
        if head.startswith("data:") and head.endswith(";base64") and comma:
            media_type = head.removeprefix("data:").removesuffix(";base64").partition(";")[0]
            return Image(url, detail, media_type, content)
        if url.startswith(("https://", "http://")):
            return Image(url, detail, "", "")
        raise TypeError(
            f'llm.chat() got {place}.image_url, which must have the URL of an image: "https://..."'
            ' or "data:image/png;base64,..."'
        )

    def functions(self, tools: Sequence[Any]) -> Iterator[Mapping[str, Any] | Function]:
        """The tools, those that chat completions know as what they are, and others as given.

        Raises:
            TypeError: One is no table, or of chat completions' type `custom`.
        """
        for number, tool in enumerate(tools):
            match tool:
                case {"type": "function", "function": {"name": str(name)} as said}:
                    schema = said.get("parameters") or {"type": "object", "properties": {}}
                    yield Function(name, said.get("description"), schema, said.get("strict"))
                case {"custom": _}:
                    self.refuse(f"tools[{number}] of type 'custom'")
                case Mapping():
                    yield tool
                case _:
                    raise TypeError(f"llm.chat() got tools[{number}], which must be a table")

    def schema(self, response_format: object) -> Mapping[str, Any] | None:
        """The `json_schema` of a `response_format`; None: it asks for text, or for any JSON.

        Raises:
            TypeError: It is something else.
        """
        wanted: Mapping[str, Any] | None = None
        match response_format:
            case {"type": "text" | "json_object"}:
                pass
            case {"type": "json_schema", "json_schema": {"schema": Mapping()} as wanted}:
                pass
            case _:
                self.refuse("this response_format")
        return wanted


def of_kind(turn: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The blocks or items of a turn that are of one type."""
    return [one for one in turn if one.get("type") == kind]


def object_of(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object, where chat completions have JSON text.

    Source for what is broken: docs.claude.com, "Fine-grained tool streaming", on invalid JSON.
    """
    found = part_of(arguments or "{}", dict[str, Any])
    return {"INVALID_JSON": arguments} if found is None else found


class Image(NamedTuple):
    """An image in a message.

    Attributes:
        url: As it was given.
        detail: How closely to look, if that was said.
        media_type: Of a data URL; empty: it is an address.
        content: Of a data URL, in base64.
    """

    url: str
    detail: str | None
    media_type: str
    content: str


class Function(NamedTuple):
    """A function that a model may call.

    Attributes:
        schema: JSON schema of its parameters.
        strict: Whether calls must match it; None: not said.
    """

    name: str
    description: str | None
    schema: Mapping[str, Any]
    strict: bool | None

    def said(self, schema: str) -> dict[str, Any]:
        """The function as an API has it that calls the schema so."""
        described = {} if self.description is None else {"description": self.description}
        return {"name": self.name, schema: self.schema, **described}
