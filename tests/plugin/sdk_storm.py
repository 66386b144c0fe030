"""Cases that send requests in all ways, and cancel some; copied into a separate project."""

import asyncio
import random

import pytest

from pytest_ultrapar import prefetch


class Ways:
    def __init__(self, llm, word):
        self.llm = llm
        self.ask = [{"role": "user", "content": word}]

    async def chat(self):
        return (await self.llm.chat(self.ask)).text

    async def plain(self):
        answer = await self.llm.openai().chat.completions.create(model="m", messages=self.ask)
        return answer.choices[0].message.content

    async def pieces(self):
        return await self.llm.openai().chat.completions.create(
            model="m", messages=self.ask, stream=True
        )

    async def stream(self):
        return "".join([one.choices[0].delta.content or "" async for one in await self.pieces()])

    async def messages(self):
        client = self.llm.anthropic()
        async with client.messages.stream(model="m", messages=self.ask, max_tokens=50) as stream:
            return await stream.get_final_text()

    async def closed(self):
        async with await self.pieces() as pieces:
            await anext(pieces)
        return await self.plain()

    async def dropped(self):
        await self.pieces()
        return await self.stream()

    async def cancelled(self):
        try:
            async with asyncio.timeout(0.05):
                await self.messages()
        except TimeoutError:
            pass
        return await self.chat()


KINDS = ("chat", "plain", "stream", "messages", "closed", "dropped", "cancelled")


@prefetch
async def got(llm, n, case) -> str:
    return await getattr(Ways(llm, str(n)), random.Random(case.seed).choice(KINDS))()


@pytest.mark.parametrize("n", range(200))
def test_it(got, n):
    assert got == f"echo: {n}"
