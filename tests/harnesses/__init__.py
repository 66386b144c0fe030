"""Other harnesses as their users write them, each in an environment of its own.

`python -m tests.harnesses` runs them with `ultrapar gateway -- COMMAND` and compares the results.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.simulator_process import simulating

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sim-sim-key0"
GATEWAY = (sys.executable, "-m", "pytest_ultrapar.cli", "gateway", "--pool", "pool.toml")
SERVED = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 1000 }
latency = { kind = "fixed", median_s = LATENCY }
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
per_key = { LIMIT }
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
    def chat_model_params(self): return {"model": "m", "stream_usage": True}
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
const promptfoo = `${__dirname}/node_modules/.bin/promptfoo`;
spawnSync(promptfoo, options.split(" "), {stdio: ["ignore", 2, 2]});
const {results} = JSON.parse(fs.readFileSync("out.json")).results;
console.log(JSON.stringify(
  results.map((one) => [one.vars.question, one.success, one.response.output]).sort()));
"""
# Its clients keep connections: now and then, one that belongs to another test's loop fails.
ONE_LOOP = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")
LANGCHAIN_RUN = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *ONE_LOOP, "harness.py")
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
TOOLS = (*NODES, *PYTHONS)


def install(name: str, environments: Path) -> None:
    """Make the environment of a tool, unless it exists."""
    home = environments / name.replace(" ", "-")
    done = home / "installed"
    if done.exists():
        return
    home.mkdir(parents=True, exist_ok=True)
    if name in NODES:
        words = ["npm", "install", "--no-audit", "--no-fund", NODES[name][0]]
        subprocess.run(words, cwd=home, check=True, capture_output=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
        words = [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "-q"]
        subprocess.run([*words, *PYTHONS[name][0]], check=True)
    done.touch()


def command(name: str, environments: Path, folder: Path) -> list[str]:
    """The command that runs a tool in a folder, which gets the tool's script."""
    home = environments / name.replace(" ", "-")
    if name in NODES:
        _, script, file = NODES[name]
        folder.joinpath("node_modules").symlink_to(home / "node_modules")
        words = ["node", str(folder / file)]
    else:
        (_, script, run), file = PYTHONS[name], "harness.py"
        words = [str(home / "venv" / "bin" / "python"), *run]
    folder.joinpath(file).write_text(script, encoding="utf-8")
    return words


@contextmanager
def served(folder: Path, *options: str, latency_s: float = 0.2) -> Iterator[str]:
    """Start a server of the models; return its address as OpenAI's base URL."""
    text = SERVED.replace("LATENCY", str(latency_s))
    folder.joinpath("served.toml").write_text(text, encoding="utf-8")
    words = ("--pool", "served.toml", "--port", 0, *options)
    with simulating(*words, cwd=folder) as (_, said):
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        if found is None:
            raise RuntimeError(said)
        yield f"{found[0]}/sim/v1"


def write_pool(folder: Path, url: str, limit: str) -> None:
    """Write the gateway's pool of that server."""
    text = POOL.replace("URL", url).replace("LIMIT", limit)
    folder.joinpath("pool.toml").write_text(text, encoding="utf-8")


def variables(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a tool."""
    # Some of pip's packages warn at import.
    own = {"PYTHONWARNINGS": "", "PYTEST_ADDOPTS": "", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES"}
    own |= {"HF_HUB_OFFLINE": "1", "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo")}
    own |= {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
    return {**os.environ, **own, "THEIR_KEY": KEY, **more}


def asked(words: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end; return its output."""
    env = variables(folder, **more)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=env)


def figures(out: str) -> object:
    """The result of a tool: the JSON of its last line, or the outcome of each of its tests."""
    tests = re.findall(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) (\S+)", out, re.MULTILINE)
    return sorted(tests) if tests else json.loads(out.strip().splitlines()[-1])
