"""Runs without a pool: `--ultrapar-model` names models of vendors and servers on this machine."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CANARY, cases, said_by

GPT = "--ultrapar-model=openai/gpt-5-mini"


@pytest.fixture
def here(project, monkeypatch):
    """Evaluations without a pool; OpenAI is the scripted server."""
    project.pytester.path.joinpath("pool.toml").unlink()
    project.suite(cases(["say a"]).replace("prompt)", "prompt, model)"))
    monkeypatch.setenv("OPENAI_BASE_URL", project.server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    return project


def run(project, *arguments):
    return project.run(*arguments, "--ultrapar-report=off", pool=False)


def models_asked(project):
    return [seen.model for seen in project.server.log.requests]


def test_requests_to_a_vendors_model_have_the_vendors_key(here, workers):
    said = said_by(run(here, workers, GPT), 0)
    assert here.server.tokens == [CANARY]
    assert models_asked(here) == ["gpt-5-mini"]
    assert [row["model"] for row in here.rows()] == ["openai/gpt-5-mini"]
    assert "ultrapar: pool --ultrapar-model, mode ultra, policy even, adaptive limits" in said
    assert "ultrapar: when a case runs, openai sends OPENAI_API_KEY to 127.0.0.1" in said
    for path in (here.pytester.path / ".ultrapar").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


def test_max_tokens_is_sent_under_the_vendors_name(here):
    body = 'async def test_it(llm): assert (await llm.chat("say a", max_tokens=5)).text\n'
    here.pytester.path.joinpath("test_suite.py").write_text(body)
    said_by(run(here, "-n0", GPT), 0)
    assert here.server.requests[-1].json()["max_completion_tokens"] == 5


def test_each_of_several_models_gets_its_cases(here):
    said_by(run(here, "-n0", GPT, "--ultrapar-model=vllm/Org/B", "--collect-only"), 0)
    listed = run(here, "-n0", GPT, "--ultrapar-model=vllm/Org/B", "--collect-only", "-q").outlines
    assert [line for line in listed if "::" in line] == [
        "test_suite.py::test_it[openai/gpt-5-mini-say a-r0]",
        "test_suite.py::test_it[vllm/Org/B-say a-r0]",
    ]


def test_missing_key_is_reported_in_one_sentence_before_anything_is_sent(
    here, workers, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert here.refusal(run(here, workers, GPT)).strip() == (
        "ERROR: --ultrapar-model: openai/gpt-5-mini needs the environment variable OPENAI_API_KEY, "
        "which is unset or empty"
    )


def test_unknown_model_name_is_refused(here):
    said = here.refusal(run(here, "-n0", "--ultrapar-model=gpt-5-mini"))
    assert said.startswith("ERROR: --ultrapar-model: must be VENDOR/NAME such as ")
    said = here.refusal(run(here, "-n0", "--ultrapar-model=opnai/gpt-5-mini"))
    assert (
        '(got "opnai/gpt-5-mini"); did you mean openai?; the vendors are openai, anthropic' in said
    )
    said = here.refusal(run(here, "-n0", f"--ultrapar-model=http://u:{CANARY}@localhost:1/v1"))
    assert "must not contain a user name or password" in said


def test_run_reads_the_model_name_from_the_server(here, workers):
    url = here.server.base_url
    place = f"localhost:{url.split(':')[2].split('/')[0]}"
    said = said_by(run(here, workers, f"--ultrapar-model={url}"), 0)
    assert set(models_asked(here)) == {"Org/Model-1B"}
    assert [row["model"] for row in here.rows()] == [place]
    assert f"ultrapar: {place}: its server reports Org/Model-1B at {place} (openai)" in said
    here.server.reset()
    said_by(run(here, workers, f"--ultrapar-model={url}#own/name"), 0)
    assert [row["model"] for row in here.rows()] == [f"{place}/own/name"]
    assert {one.method for one in here.server.requests} == {"POST"}
    assert models_asked(here) == ["own/name"]


def test_server_without_exactly_one_model_is_refused(here):
    url = here.server.base_url
    here.server.served = ["a", "b"]
    said = here.refusal(run(here, "-n0", f"--ultrapar-model={url}"))
    named = f"name the model (as {url}#NAME, or as api_name in the"
    assert f"{url}/models: lists 2 models (a, b); {named}" in said
    here.server.served = []
    said = here.refusal(run(here, "-n0", f"--ultrapar-model={url}"))
    assert "lists 0 models (none)" in said


def test_missing_server_is_reported_in_one_sentence(here, workers):
    given = "--ultrapar-model=http://127.0.0.1:1/v1", "--ultrapar-wait-for-servers=0"
    said = here.refusal(run(here, workers, *given))
    assert said.strip() == (
        "ERROR: http://127.0.0.1:1/v1/models: no server answers (Connection refused); start the "
        "server, or name the model (as http://127.0.0.1:1/v1#NAME, or as api_name in the pool)"
    )


@pytest.mark.parametrize("more", [["--collect-only"], ["test_unit.py"], ["--ultrapar-plan"]])
def test_session_that_sends_nothing_does_not_contact_the_server(here, more):
    here.pytester.path.joinpath("test_unit.py").write_text("def test_adds(): assert 1 + 1 == 2\n")
    said_by(run(here, "-n0", f"--ultrapar-model={here.server.base_url}", *more), 0)
    assert here.server.requests == []


def test_pool_in_the_ini_takes_precedence_and_the_error_names_a_remedy(here, workers):
    here.write_pool()
    here.pytester.makeini("[pytest]\nultrapar_pool = pool.toml\n")
    said = here.refusal(run(here, "-n0", GPT))
    assert (
        "--ultrapar-model 'openai/gpt-5-mini' matches no model in pool.toml; allowed: m; to name a "
        "model in this form, run without a pool (-o ultrapar_pool=)"
    ) in said.replace(f"{here.pytester.path}/", "")
    url = f"http://u:{CANARY}@localhost:1/v1"
    assert "--ultrapar-model URL matches no" in here.refusal(
        run(here, "-n0", f"--ultrapar-model={url}")
    )
    said_by(run(here, workers, GPT, "-o", "ultrapar_pool="), 0)
    assert models_asked(here) == ["gpt-5-mini"]


def test_pool_may_take_the_model_name_from_a_server_on_this_machine(here):
    here.write_pool(instances='[{ name = "i", api_name = "*" }]')
    said_by(here.run("-n0"), 0)
    assert models_asked(here) == ["Org/Model-1B"]
    here.write_pool(instances='[{ name = "i", api_name = "*" }]', base_url="https://x.example/v1")
    assert "api_name must consist of letters" in here.run("-n0").stderr.str()


def test_resumed_run_is_the_same_run(here):
    said_by(run(here, "-n0", GPT), 0)
    result = run(here, "-n0", GPT, "--ultrapar-resume=latest")
    said_by(result, 0)
    assert models_asked(here) == ["gpt-5-mini"]


def test_resumed_run_that_is_complete_does_not_contact_the_server(here):
    url = f"--ultrapar-model={here.server.base_url}"
    said_by(run(here, "-n0", url), 0)
    here.server.reset()
    said_by(run(here, "-n0", url, "--ultrapar-resume=latest"), 0)
    assert here.server.requests == []


def test_missing_role_is_reported_with_the_lines_to_write(here):
    body = "async def test_it(llm):\n    assert await llm.role('judge').chat('say a')\n"
    here.pytester.path.joinpath("test_suite.py").write_text(body)
    result = run(here, "-n0", GPT)
    said = result.stdout.str()
    assert "\n>       assert await llm.role('judge').chat('say a')\n" in said
    assert (
        "ConfigError: llm.role('judge'): the pool has no such role; add this to the pool "
        'file (ultrapar init creates one):\nE           [role.judge]\nE           model = "NAME"\n'
    ) in said
    assert "sender.py" not in said
    assert "errors.py" not in said


def test_run_that_sent_nothing_leaves_no_folder(here, workers):
    here.pytester.path.joinpath("test_unit.py").write_text("def test_adds(): assert 1 + 1 == 2\n")
    said = said_by(run(here, workers, GPT, "test_unit.py"), 0)
    assert "ultrapar: when a case runs, openai sends OPENAI_API_KEY to 127.0.0.1" in said
    said_by(run(here, "-n0", GPT), 0)
    said_by(run(here, "-n0", GPT, "test_unit.py"), 0)
    assert len(here.rows()) == 1


@pytest.mark.parametrize("wrong", ["asked.text", '"a" in asked'])
def test_answer_that_is_not_awaited_gets_a_hint(here, wrong):
    here.pytester.path.joinpath("test_suite.py").write_text(
        "async def test_it(llm):\n    asked = llm.chat('say a')\n"
        f"    try: assert {wrong}\n    finally: asked.close()\n"
    )
    hint = "answer not awaited: write `await llm.chat(...)`"
    assert hint in run(here, "-n0", GPT).stdout.str()
    assert hint in run(here, "-n0", GPT, "--ultrapar-resume=latest").stdout.str()


def test_error_of_an_async_generator_names_the_yield(here):
    body = "async def test_it(llm):\n    await llm.chat('say a')\n    yield\n"
    here.pytester.path.joinpath("test_suite.py").write_text(body)
    said = here.refusal(run(here, "-n0", GPT))
    assert "test_it: an async test that takes `llm` must not have a `yield`, be a static" in said


def test_answer_that_is_never_awaited_is_an_error(here):
    here.pytester.path.joinpath("test_suite.py").write_text(
        "import warnings\nwarnings.simplefilter('ignore')\n"
        "async def test_it(llm):\n    llm.chat('say a')\n"
    )
    said = run(here, "-n0", GPT, "-Wignore").stdout.str()
    assert "answer not awaited: write `await llm.chat(...)`" in said
    assert here.kinds() == {("error", "NotAwaited"): 1}
    assert here.server.prompts == []
