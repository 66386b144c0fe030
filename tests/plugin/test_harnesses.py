"""Harnesses of others, unchanged: by `ultrapar gateway -- COMMAND` their figures are their own.

Each has an environment of its own, made of what the package index has. It asks a calm server
directly first, and then one that refuses all requests for some seconds, by a pool of few seats.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import read_server_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

N = 20
SERVED = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 100 }
latency = { kind = "fixed", median_s = 0.2 }
[[provider.model]]
name = "m"
instances = ["m"]
persona = "echo"
[[provider.model]]
name = "gpt-4o"
instances = ["gpt-4o"]
persona = "echo"
"""
STORM = """
[[fault]]
kind = "error"
error = "rate_limit_exceeded"
headers = { retry-after = "1" }
from_s = 0.3
for_s = 5
"""
POOL = """
schema = 1
[[provider]]
name = "their"
api = "openai"
base_url = "URL"
keys = [{ name = "key0", env = "THEIR_KEY" }]
per_key = { workers = 3 }
[[provider.model]]
name = "m"
instances = ["m"]
price_per_mtok_in = 1.0
price_per_mtok_out = 2.0
[[provider.model]]
name = "gpt-4o"
instances = ["gpt-4o"]
price_per_mtok_in = 1.0
price_per_mtok_out = 2.0
"""
NODE = """
import OpenAI from "openai";
const client = new OpenAI();
const said = await Promise.all([...Array(20).keys()].map(async (n) => {
  const asked = {model: "m", messages: [{role: "user", content: `word ${n}`}]};
  if (n % 2) return (await client.chat.completions.create(asked)).choices[0].message.content;
  let text = "";
  for await (const piece of await client.chat.completions.create({...asked, stream: true}))
    text += piece.choices[0].delta.content ?? "";
  return text;
}));
console.log(JSON.stringify(said));
"""
PYDANTIC_AI = """
import asyncio, json
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel("m"))

async def ask(n):
    if n % 2:
        return (await agent.run(f"word {n}")).output
    async with agent.run_stream(f"word {n}") as run:
        return await run.get_output()

async def main():
    print(json.dumps(await asyncio.gather(*map(ask, range(20)))))

asyncio.run(main())
"""
INSPECT = """
import json
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

samples = [Sample(input=f"word {n}", target=f"word {n // 2}") for n in range(20)]
task = Task(dataset=samples, solver=generate(), scorer=includes())
(log,) = eval(task, model="openai/m", max_connections=20, display="none")
print(json.dumps([log.status, log.results.scores[0].metrics["accuracy"].value, *sorted(
    [sample.input, sample.output.completion] for sample in log.samples)]))
"""
LANGCHAIN = """
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

class TestTheirs(ChatModelIntegrationTests):
    @property
    def chat_model_class(self): return ChatOpenAI
    @property
    def chat_model_params(self): return {"model": "m"}
"""
DEEPEVAL = """
import json
from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, DisplayConfig
from deepeval.metrics import AnswerRelevancyMetric
from deepeval.test_case import LLMTestCase

cases = [LLMTestCase(input=f"word {n}", actual_output=f"said {n}") for n in range(20)]
found = evaluate(
    cases,
    [AnswerRelevancyMetric(model="gpt-4o")],
    async_config=AsyncConfig(max_concurrent=20),
    display_config=DisplayConfig(show_indicator=False, print_results=False),
)
print(json.dumps(sorted(
    [one.input, one.success, one.metrics_data[0].score, one.metrics_data[0].error]
    for one in found.test_results
)))
"""
LM_EVAL = '''
import json, os
from pathlib import Path
import lm_eval
from lm_eval.tasks import TaskManager

rows = [{"question": f"word {n}", "answer": f"echo: word {n // 2 * 2}"} for n in range(20)]
Path("words.jsonl").write_text("\\n".join(map(json.dumps, rows)))
Path("words.yaml").write_text("""
task: words
dataset_path: json
dataset_kwargs: {data_files: {test: words.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["END"], max_gen_toks: 64}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""")
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
found = lm_eval.simple_evaluate(
    model="local-chat-completions",
    model_args={"model": "m", "base_url": url, "num_concurrent": 20},
    tasks=["words"],
    task_manager=TaskManager(include_path="."),
    apply_chat_template=True,
)
said = sorted(one["filtered_resps"] for one in found["samples"]["words"])
print(json.dumps([found["results"]["words"], said]))
'''
PROMPTFOO = """
const fs = require("fs"), {spawnSync} = require("child_process");
const tests = [...Array(20).keys()].map((n) => ({
  vars: {question: `word ${n}`}, assert: [{type: "contains", value: `word ${n - n % 2}`}],
}));
const config = {prompts: ["{{question}}"], providers: ["openai:chat:m"], tests};
fs.writeFileSync("promptfooconfig.json", JSON.stringify(config));
const options = "eval -c promptfooconfig.json --no-cache -j 20 -o out.json --no-progress-bar";
spawnSync("node_modules/.bin/promptfoo", options.split(" "), {stdio: ["ignore", 2, 2]});
const {results} = JSON.parse(fs.readFileSync("out.json")).results;
console.log(JSON.stringify(
  results.map((one) => [one.vars.question, one.success, one.response.output]).sort()));
"""
LANGCHAIN_RUN = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "harness.py")
PYTHONS = {
    "pydantic-ai": (("pydantic-ai-slim[openai]",), PYDANTIC_AI, ("harness.py",)),
    "inspect_ai": (("inspect_ai", "openai"), INSPECT, ("harness.py",)),
    "deepeval": (("deepeval",), DEEPEVAL, ("harness.py",)),
    "lm-eval": (("lm_eval[api]",), LM_EVAL, ("harness.py",)),
    "langchain-tests": (("langchain-tests", "langchain-openai"), LANGCHAIN, LANGCHAIN_RUN),
}


NODES = {
    "openai for Node": ("openai", NODE, "harness.mjs"),
    "promptfoo": ("promptfoo", PROMPTFOO, "harness.cjs"),
}


def prepared(folder: Path, name: str) -> list[str]:
    """The command of a harness, in an environment that is made for it below a folder."""
    if name in NODES:
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        package, script, file = NODES[name]
        folder.joinpath(file).write_text(script, encoding="utf-8")
        install = ["npm", "install", "--no-audit", "--no-fund", package]
        subprocess.run(install, cwd=folder, check=True, capture_output=True)
        return ["node", str(folder / file)]
    packages, script, run = PYTHONS[name]
    folder.joinpath("harness.py").write_text(script, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return [python, *run]


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """A server of the model; its address, as that of OpenAI's API."""
    folder.joinpath("served.toml").write_text(SERVED, encoding="utf-8")
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "simulate", "--pool", "served.toml"]
    with subprocess.Popen(
        [*command, "--port", "0", *options], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said = ""
            for line in process.stdout or ():
                said += line
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield f"{found[0]}/sim/v1"
                    break
            else:
                pytest.fail(said)
        finally:
            process.kill()


def figures(out: str) -> object:
    """What a harness found: the JSON of its last line, or what became of each of its tests."""
    tests = re.findall(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) (\S+)", out, re.MULTILINE)
    return sorted(tests) if tests else json.loads(out.strip().splitlines()[-1])


def asked(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # Of pip's packages some warn at import.
    own = {"PYTHONWARNINGS": "", "PYTEST_ADDOPTS": "", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES"}
    own |= {"HF_HUB_OFFLINE": "1", "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo")}
    own |= {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **own, **variables},
    )


@pytest.mark.parametrize("name", [*NODES, *PYTHONS])
def test_harness_finds_the_same_by_the_gateway_in_a_queue_and_a_storm(tmp_path, name):
    command = prepared(tmp_path, name)
    key = "sim-sim-key0"
    with served(tmp_path) as url:
        direct = asked(command, tmp_path, OPENAI_BASE_URL=url, OPENAI_API_KEY=key)
    tmp_path.joinpath("storm.toml").write_text(STORM, encoding="utf-8")
    with served(tmp_path, "--faults", "storm.toml", "--log", "server.jsonl") as url:
        tmp_path.joinpath("pool.toml").write_text(POOL.replace("URL", url), encoding="utf-8")
        gateway = [sys.executable, "-m", "pytest_ultrapar.cli", "gateway", "--pool", "pool.toml"]
        ours = asked([*gateway, "--", *command], tmp_path, THEIR_KEY=key)
    assert direct.returncode == ours.returncode, (direct, ours)
    assert figures(ours.stdout) == figures(direct.stdout) != []
    directory = tmp_path / ".ultrapar" / "latest"
    log = read_server_log(tmp_path / "server.jsonl")
    assert log.count(429) > 0
    assert log.max_in_flight(key="key0") <= 3
    rows = pq.read_table(directory / "results.parquet").to_pylist()
    answered = [row for row in rows if row["outcome"] == "solved"]
    assert len(answered) >= N
    # Those that a client left, as one does that has enough of a stream, took who knows how much.
    assert all(row["cost"] > 0 for row in answered)
    assert {row["param.client"] != "" for row in answered} == {True}
