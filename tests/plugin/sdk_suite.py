"""Each SDK in each way; copied into a separate project."""

import pytest
from pydantic import BaseModel

from pytest_ultrapar import prefetch

ASK = [{"role": "user", "content": "word"}]
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class Person(BaseModel):
    name: str


class Ways:
    """An SDK in five ways; each returns its result."""

    def __init__(self, llm):
        self.llm = llm


class Chat(Ways):
    async def plain(self):
        answer = await self.llm.openai().chat.completions.create(model="m", messages=ASK)
        return answer.choices[0].message.content

    async def stream(self):
        pieces = await self.llm.openai().chat.completions.create(
            model="m", messages=ASK, stream=True
        )
        return "".join([p.choices[0].delta.content or "" async for p in pieces if p.choices])

    async def tools(self):
        tool = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
        answer = await self.llm.openai().chat.completions.create(
            model="m", messages=ASK, tools=[tool], tool_choice="required"
        )
        return answer.choices[0].message.tool_calls[0].function.name

    async def structured(self):
        answer = await self.llm.openai().chat.completions.parse(
            model="m", messages=ASK, response_format=Person
        )
        return type(answer.choices[0].message.parsed).__name__

    async def error(self):
        import openai

        try:
            await self.llm.openai().chat.completions.create(model="m", messages=[])
        except openai.BadRequestError as error:
            return str(error.status_code)


class Azure(Ways):
    """Azure's form of the client, which requires an address."""

    @property
    def client(self):
        import openai

        return openai.AsyncAzureOpenAI(
            api_key=self.llm.api_key,
            azure_endpoint="https://pool.invalid",
            api_version="2024-10-21",
            http_client=self.llm.httpx_client(),
        )

    async def plain(self):
        answer = await self.client.chat.completions.create(model="m", messages=ASK)
        return answer.choices[0].message.content

    async def stream(self):
        async with self.client.responses.stream(model="m", input="word") as events:
            return (await events.get_final_response()).output_text


class Responses(Ways):
    async def plain(self):
        return (await self.llm.openai().responses.create(model="m", input="word")).output_text

    async def stream(self):
        async with self.llm.openai().responses.stream(model="m", input="word") as events:
            return (await events.get_final_response()).output_text

    async def tools(self):
        tool = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}
        answer = await self.llm.openai().responses.create(
            model="m", input="word", tools=[tool], tool_choice="required"
        )
        return next(one.name for one in answer.output if one.type == "function_call")

    async def structured(self):
        answer = await self.llm.openai().responses.parse(
            model="m", input="word", text_format=Person
        )
        return type(answer.output_parsed).__name__

    async def error(self):
        import openai

        try:
            await self.llm.openai().responses.create(model="m", input=3)
        except openai.BadRequestError as error:
            return str(error.status_code)


class Messages(Ways):
    async def plain(self):
        answer = await self.llm.anthropic().messages.create(model="m", messages=ASK, max_tokens=50)
        return answer.content[0].text

    async def stream(self):
        async with self.llm.anthropic().messages.stream(
            model="m", messages=ASK, max_tokens=50
        ) as s:
            return await s.get_final_text()

    async def tools(self):
        answer = await self.llm.anthropic().messages.create(
            model="m",
            messages=ASK,
            max_tokens=50,
            tool_choice={"type": "any"},
            tools=[{"name": "look", "input_schema": PARAMETERS}],
        )
        return next(one.name for one in answer.content if one.type == "tool_use")

    async def structured(self):
        answer = await self.llm.anthropic().messages.parse(
            model="m", messages=ASK, max_tokens=50, output_format=Person
        )
        return type(answer.parsed_output).__name__

    async def error(self):
        import anthropic

        try:
            await self.llm.anthropic().messages.create(model="m", messages=[], max_tokens=5)
        except anthropic.BadRequestError as error:
            return str(error.status_code)


class Gemini(Ways):
    @property
    def client(self):
        from google import genai

        return genai.Client(
            api_key=self.llm.api_key,
            http_options=genai.types.HttpOptions(httpx_async_client=self.llm.httpx_client()),
        ).aio

    async def plain(self):
        return (await self.client.models.generate_content(model="m", contents="word")).text

    async def stream(self):
        pieces = await self.client.models.generate_content_stream(model="m", contents="word")
        return "".join([piece.text or "" async for piece in pieces])

    async def tools(self):
        answer = await self.client.models.generate_content(
            model="m",
            contents="word",
            config={
                "tools": [
                    {
                        "function_declarations": [
                            {"name": "look", "parameters_json_schema": PARAMETERS}
                        ]
                    }
                ],
                "tool_config": {"function_calling_config": {"mode": "ANY"}},
            },
        )
        return answer.function_calls[0].name

    async def structured(self):
        answer = await self.client.models.generate_content(
            model="m",
            contents="word",
            config={"response_mime_type": "application/json", "response_schema": Person},
        )
        return type(answer.parsed).__name__

    async def error(self):
        from google.genai import errors

        try:
            await self.client.models.generate_content(model="m", contents=[])
        except (errors.ClientError, ValueError) as error:
            return str(getattr(error, "code", 400))


class Mistral(Ways):
    @property
    def client(self):
        from mistralai.client import Mistral

        return Mistral(api_key=self.llm.api_key, async_client=self.llm.httpx_client())

    async def plain(self):
        return (
            (await self.client.chat.complete_async(model="m", messages=ASK))
            .choices[0]
            .message.content
        )

    async def stream(self):
        pieces = await self.client.chat.stream_async(model="m", messages=ASK)
        return "".join(
            [p.data.choices[0].delta.content or "" async for p in pieces if p.data.choices]
        )

    async def tools(self):
        tool = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
        answer = await self.client.chat.complete_async(
            model="m", messages=ASK, tools=[tool], tool_choice="required"
        )
        return answer.choices[0].message.tool_calls[0].function.name

    async def structured(self):
        answer = await self.client.chat.parse_async(Person, model="m", messages=ASK)
        return type(answer.choices[0].message.parsed).__name__

    async def error(self):
        from mistralai.client.errors import SDKError

        try:
            await self.client.chat.complete_async(model="m", messages=[])
        except SDKError as error:
            return str(error.status_code)


WAYS = {one.__name__: one for one in Ways.__subclasses__()}
CASES = [
    f"{name}-{way}"
    for name, cls in WAYS.items()
    for way in ("plain", "stream", "tools", "structured", "error")
    if way in vars(cls)
]


@prefetch
async def got(llm, way) -> str:
    name, kind = way.split("-")
    return await getattr(WAYS[name](llm), kind)()


@pytest.mark.parametrize("way", CASES)
@pytest.mark.parametrize("n", range(2))
def test_way(got, way, n):
    _, kind = way.split("-")
    if kind in ("plain", "stream"):
        assert got == "echo: word"
    else:
        assert got == {"tools": "look", "structured": "Person", "error": "400"}[kind]
