"""Split requests for chat completions into their parts, for APIs with another format.

`llm.chat()` accepts the messages and parameters of chat completions. The modules of other APIs
translate them. If a part has no counterpart, an error names it before anything is sent, because
omitting it would change the request. Parts that are unknown in chat completions are regarded as
parts of the other API, and are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from pytest_ultrapar.apis.reply import NATIVE, Message, Messages
from pytest_ultrapar.apis.server_json import part_of

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "system": (),
    "developer": (),
    "user": (),
    "assistant": ("tool_calls", "refusal"),
    # The name is not sent: the call already names the function.
    "tool": ("tool_call_id", "name"),
}
"""For each role, the fields that a message may have in addition to `role` and `content`."""
NO_COUNTERPART: dict[str, Any] = {"n": 1, "modalities": ["text"]} | dict.fromkeys(
    ("logit_bias", "functions", "function_call", "audio", "prediction", "web_search_options")
)
"""Parameters of chat completions that no other API has, each with the value that has no effect."""
OF_OPENAI = NO_COUNTERPART | {"logprobs": False, "top_logprobs": 0, "store": False}
OF_OPENAI |= dict.fromkeys(
    ("verbosity", "reasoning_effort", "prompt_cache_key", "safety_identifier")
)
"""Parameters that only OpenAI's APIs support, each with the value that has no effect."""


class Translator(NamedTuple):
    """Reads the parts of chat completions for one other API, which its error messages name.

    Attributes:
        api: The API's name in `pool.toml`.
        no_counterpart: The parameters without a counterpart, each with the value that has no
            effect. A parameter is omitted if it has this value or is None.
    """

    api: str
    no_counterpart: Mapping[str, Any]

    def refuse(self, what: str) -> NoReturn:
        """Raise an error for a part that has no counterpart.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f'llm.chat() got {what}, which has no counterpart in api = "{self.api}"')

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that have an effect.

        Raises:
            TypeError: A parameter that has an effect has no counterpart.
        """
        asked = {name: value for name, value in given.items() if value is not None}
        for name, nothing in self.no_counterpart.items():
            if name in asked and asked.pop(name) != nothing:
                self.refuse(f"{name!r} (to omit it: parameters = {{ {name} = false }} in the pool)")
        return asked

    def bound(self, parameters: dict[str, Any]) -> int | None:
        """Remove the maximum length of an answer from the parameters, and return it.

        The parameter has a new and an old name.

        Raises:
            TypeError: Both names are used.
        """
        newer: int | None = parameters.pop("max_completion_tokens", None)
        older: int | None = parameters.pop("max_tokens", None)
        if newer is not None and older is not None:
            raise TypeError(
                "llm.chat() got max_tokens and max_completion_tokens: pass only one of them"
            )
        return older if newer is None else newer

    def turns(self, messages: Messages) -> Iterator[tuple[str, Message, str]]:
        """For each message, yield its role, the message itself, and its position for errors.

        Raises:
            TypeError: A role is unknown, or a message has a field that its role does not allow.
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
        """Return the content of the system messages at the beginning, and the conversation's turns.

        Args:
            messages: All messages.
            made: For each role, the function that translates the content of a message. The entry
                `late` is for system messages after the first turn.
            field: The name of the field that contains a turn's content.
            own: The API's word for the model's role.

        Raises:
            TypeError: As in `turns`.
        """
        system: list[Any] = []
        turns: list[dict[str, Any]] = []
        before = ""
        for role, message, place in self.turns(messages):
            if role in {"system", "developer"} and not turns:
                system += made["system"](message, place)
            elif role == before == "tool":
                # Consecutive results answer the same turn of the model, so they form one turn.
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
        """Return a message's content as parts, each with its position; a text becomes one part.

        The list is empty if the message has no content.

        Raises:
            TypeError: The content is neither a text nor a list of parts.
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
                f"llm.chat() got {place}.content, which must be a string or a list of parts"
            )
        return [(part, f"{place}.content[{number}]") for number, part in enumerate(content)]

    def content(
        self, message: Message, place: str, part: Callable[[Mapping[str, Any], str], Any]
    ) -> str | list[Any]:
        """Return the content of a message, with `part` applied to each part; a text remains a text.

        Raises:
            TypeError: As in `parts`.
        """
        if isinstance(text := message.get("content"), str):
            return text
        return [part(one, where) for one, where in self.parts(message, place)]

    def said(self, message: Message, place: str) -> str:
        """Return the text of a message from the model, or the refusal if there is no text.

        Raises:
            TypeError: A part of the message is neither a text nor a refusal.
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
        """Yield the id, function name and arguments of each tool call in a message.

        Raises:
            TypeError: A call has no id, or is not a function call with a name and arguments.
        """
        for number, call in enumerate(message.get("tool_calls") or ()):
            where = f"{place}.tool_calls[{number}]"
            match call:
                case {"function": {"name": str(name), "arguments": str(arguments)}}:
                    yield self.id_of(call.get("id"), f"{where}.id"), name, arguments
                case _:
                    self.refuse(f"{where} (not a call of a function)")

    def id_of(self, given: object, place: str) -> str:
        """Check and return the id that connects a call with its result.

        Raises:
            TypeError: The id is missing, empty, or not a text.
        """
        if not isinstance(given, str) or not given:
            raise TypeError(
                f'llm.chat() requires a non-empty string as {place} for api = "{self.api}"'
            )
        return given

    def called(self, message: Message, place: str) -> str:
        """Return the id of the call whose result a message contains.

        Raises:
            TypeError: As in `id_of`.
        """
        return self.id_of(message.get("tool_call_id"), f"{place}.tool_call_id")

    def image(self, part: Mapping[str, Any], place: str) -> Image:
        """Return the image in a part of type `image_url`.

        Raises:
            TypeError: The image is neither a base64 data URL nor an HTTP(S) address, or the part
                has a field without a counterpart.
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
            f"llm.chat() got {place}.image_url, which must be the URL of an image:"
            ' "https://..." or "data:image/png;base64,..."'
        )

    def functions(self, tools: Sequence[Any]) -> Iterator[Mapping[str, Any] | Function]:
        """Yield functions in chat completions' format as `Function`, and all other tools unchanged.

        Raises:
            TypeError: A tool is not a mapping, or is a custom tool in chat completions' format.
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
                    raise TypeError(f"llm.chat() got tools[{number}], which must be a dict")

    def schema(self, response_format: object) -> Mapping[str, Any] | None:
        """Return the `json_schema` in a `response_format`; None for text, or JSON without a schema.

        Raises:
            TypeError: The format is unknown.
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
    """The blocks or items in a turn that have this type."""
    return [one for one in turn if one.get("type") == kind]


def object_of(arguments: str) -> dict[str, Any]:
    """Decode the arguments of a call, which are JSON text in chat completions.

    Text that is not a JSON object is put into an object, in a field `INVALID_JSON`. Source:
    docs.claude.com, "Fine-grained tool streaming".
    """
    found = part_of(arguments or "{}", dict[str, Any])
    return {"INVALID_JSON": arguments} if found is None else found


class Image(NamedTuple):
    """An image in a message.

    Attributes:
        url: The URL as the caller wrote it.
        detail: The level of detail, if set.
        media_type: The media type of a data URL; empty for an address.
        content: The base64 content of a data URL; empty for an address.
    """

    url: str
    detail: str | None
    media_type: str
    content: str


class Function(NamedTuple):
    """A function that a model may call.

    Attributes:
        schema: The JSON schema of the function's parameters.
        strict: Whether calls must match the schema; None if not set.
    """

    name: str
    description: str | None
    schema: Mapping[str, Any]
    strict: bool | None

    def said(self, schema: str) -> dict[str, Any]:
        """The function as JSON for an API; the argument is the API's name for the schema field."""
        described = {} if self.description is None else {"description": self.description}
        return {"name": self.name, schema: self.schema, **described}
