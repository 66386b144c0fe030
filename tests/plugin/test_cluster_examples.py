"""The examples of `examples/cluster`: the commands that they run, and their options."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pytest_ultrapar import cli
from pytest_ultrapar.cluster.server import RULES
from pytest_ultrapar.pool.settings import Options
from tests.key_value_server import KeyValueServer
from tests.light import PYTEST
from tests.plugin.conftest import cases

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cluster"
N = 12
MANIFESTS = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8")))
BY_KIND = {one["kind"]: one for one in MANIFESTS}


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def lab(project, monkeypatch):
    """A folder with the commands that an example calls: this environment's pytest and ultrapar."""
    path = project.pytester.path
    project.suite(cases(N))
    path.joinpath("suite").mkdir()
    path.joinpath("test_suite.py").rename(path / "suite" / "test_suite.py")
    run = shlex.join(PYTEST)
    program(path / "bin" / "pytest", f'exec {run} --ultrapar-report=off "$@"')
    ultrapar = "from pytest_ultrapar.cli import main; raise SystemExit(main())"
    program(path / "bin" / "ultrapar", f'exec {sys.executable} -c "{ultrapar}" "$@"')
    monkeypatch.setenv("PATH", f"{path / 'bin'}:{os.environ['PATH']}")
    return path


@pytest.fixture
def kv(tmp_path):
    """The manifest's server, with its own configuration."""
    text = BY_KIND["Secret"]["stringData"]["valkey.conf"].replace("dir /data\n", "")
    tmp_path.joinpath("valkey.conf").write_text(text)
    with KeyValueServer.start("--include", str(tmp_path / "valkey.conf")) as server:
        yield server


@pytest.fixture
def url(kv):
    url = BY_KIND["Secret"]["stringData"]["url"]
    return url.replace("ultrapar-server:6379", f"127.0.0.1:{kv.port}")


def each_once(directory, hosts):
    found = pq.read_table(directory / "results.parquet").to_pylist()
    assert sorted(Counter(row["nodeid"] for row in found).values()) == [1] * N
    assert {row["host"] for row in found} <= hosts


@pytest.mark.slow
def test_tasks_of_a_slurm_array_are_hosts_of_one_run(lab, project, url):
    program(lab / "bin" / "srun", 'exec "$@"')
    lab.joinpath(".ultrapar-cluster").write_text(url)
    environ = os.environ | {
        "RUN": "night", "SLURM_ARRAY_JOB_ID": "71", "SLURM_CPUS_PER_TASK": "0", "HOME": str(lab),
    }  # fmt: skip
    environ.pop("ULTRAPAR_CLUSTER", None)
    tasks = [
        subprocess.Popen(
            ["sh", str(EXAMPLES / "slurm.sh")],
            cwd=lab, env=environ | {"SLURM_ARRAY_TASK_ID": str(n)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for n in (1, 2)
    ]  # fmt: skip
    outputs = [task.communicate(timeout=120)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], outputs
    hosts = {"slurm-71-1", "slurm-71-2"}
    parts = sorted((lab / "runs" / "night").iterdir())
    # The last task has merged all directories.
    assert {path.name for path in parts if not path.name.startswith("merged-night-")} == hosts
    assert len(parts) == len(hosts) + 1
    assert cli.main(["merge", *map(str, parts), "--out", str(lab / "merged")]) == 0
    each_once(lab / "merged", hosts)
    assert len(project.server.prompts) == N


@pytest.mark.slow
def test_machines_reached_over_ssh_are_hosts_of_one_run(lab, project, url):
    program(lab / "bin" / "ssh", f'cd {lab}/"$1" && shift && exec sh -c "$*"')
    for machine in ("m1", "me@m2"):
        there = lab / machine / "evals"
        there.mkdir(parents=True)
        for name in ("suite", "pool.toml"):
            there.joinpath(name).symlink_to(lab / name)
        there.joinpath("keys.env").write_text("LAB_KEY=nothing\n")
        there.joinpath(".venv", "bin").mkdir(parents=True)
        there.joinpath(".venv", "bin", "pytest").symlink_to(lab / "bin" / "pytest")
    done = subprocess.run(
        ["sh", str(EXAMPLES / "ssh.sh"), "night", "m1", "me@m2"],
        cwd=lab, env=os.environ | {"ULTRAPAR_CLUSTER": url, "WORKERS": "0"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    logs = [path.read_text() for path in sorted((lab / "runs" / "night").glob("*.log"))]
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    each_once(lab / "runs" / "night-merged", {"m1", "me-m2"})
    assert len(project.server.prompts) == N


def test_parts_of_the_manifest_fit_each_other():
    assert len(MANIFESTS) == len(BY_KIND)
    secret, pods = BY_KIND["Secret"], BY_KIND["Deployment"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    assert pods["selector"]["matchLabels"] == labels == BY_KIND["Service"]["spec"]["selector"]
    config = secret["stringData"]["valkey.conf"]
    page = (ROOT / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ +ACL SETUSER (.*)$", page, re.MULTILINE)
    assert line.endswith(RULES)
    assert f"\nuser {line.replace('PASSWORD', 'CHANGE-ME')}\n" in config
    assert f"@{BY_KIND['Service']['metadata']['name']}:6379/" in secret["stringData"]["url"]
    for one in (pods["template"]["spec"], BY_KIND["Job"]["spec"]["template"]["spec"]):
        (container,) = one["containers"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in one["volumes"]}
    (container,) = BY_KIND["Job"]["spec"]["template"]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} == {"RUN", "POD", "ULTRAPAR_CLUSTER"}
    understood(container["args"][0].removeprefix("exec "))


def understood(command):
    """Whether pytest knows every option of the plugin in a command."""
    names = {
        setting.option.split()[0]
        for setting in vars(Options).values()
        if getattr(setting, "option", None)
    }
    words = shlex.split(command)
    used = {word.partition("=")[0] for word in words if word.startswith("--ultrapar-")}
    assert words[0] == "pytest"
    assert used
    assert used <= names


def test_options_of_the_workflow_exist():
    text = (EXAMPLES / "github-matrix.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert sorted(jobs) == ["hosts", "merge", "shards"]
    assert jobs["merge"]["needs"] == ["shards", "hosts"]
    run = {
        name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()
    }
    for name in ("shards", "hosts"):
        (command,) = [one for one in run[name] if one.startswith("pytest")]
        understood(command)
        steps = {step["uses"].split("@")[0] for step in jobs[name]["steps"] if "uses" in step}
        assert "actions/upload-artifact" in steps
    last = jobs["shards"]["strategy"]["matrix"]["k"][-1]
    assert f"--ultrapar-shard ${{{{ matrix.k }}}}/{last}" in "".join(run["shards"])
    for command in run["merge"]:
        if command.startswith("ultrapar"):
            _, *words = shlex.split(command)
            assert cli._parser().parse_known_args(words)[1] == []


def test_a_task_of_ray_is_a_host():
    path = EXAMPLES / "ray_tasks.py"
    ast.parse(path.read_text(encoding="utf-8"))
    command = runpy.run_path(str(path), run_name="example")["command"]
    words = command("night", "ray-1", ["suite", "-n", "4"], Path("runs"))
    assert words[:3] == [sys.executable, "-m", "pytest"]
    understood(shlex.join(words[2:]))
    assert words[words.index("--ultrapar-cluster-host") + 1] == "ray-1"
    assert words[-1] == "--ultrapar-out=runs/ray-1"
    assert "ray" not in sys.modules
