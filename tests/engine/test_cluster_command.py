"""`ultrapar cluster` against a real server: its output, its changes, and other writers' data."""

import json
import re
import socketserver
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.broker.notices import LaneNotice
from pytest_ultrapar.cli import main
from pytest_ultrapar.cluster.address import read_address
from pytest_ultrapar.cluster.claim_protocol import ClaimCall, JoinCall, LeaveCall
from pytest_ultrapar.cluster.ledger import Renewal, RowSpec, RowUse
from pytest_ultrapar.cluster.notices import notice_of
from pytest_ultrapar.cluster.run_identity import RunIdentity
from pytest_ultrapar.cluster.server import ClusterServer, HostState, RunState
from pytest_ultrapar.cluster.shards import whole_of
from pytest_ultrapar.cluster.status import MOST_HOSTS
from tests.key_value_server import KeyValueServer

PREFIX = "{ultrapar:default}:"
CANARY = "s3cret-canary"
QPS = RowSpec(name="key:abc:qps", kind="paced", amount=2, window_ms=1000, group="key:abc")
SEATS = RowSpec(name="key:abc:workers", kind="seats", amount=5, longest_ms=2000, group="key:abc")
IDENTITY = RunIdentity(
    version="9.8.7", seed=0, mode="ultra", rate_mode="fixed", policy="even", shard="", pool="p",
    groups="", models=("m",), n_cases=50, suite="s", order="o", numbers="n",
)  # fmt: skip


ANSWERS = {
    "+OK to all": b"+OK\r\n",
    "invalid numbers": b":abc\r\n",
    "lists without end": b"*1\r\n" * 100_000,
    "not the protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "invalid facts": b"$36\r\nredis_version:7.0.15\r\nrun_id:x\r\naof_\r\n\r\n",
    "the password": f"-ERR what is {CANARY}?\r\n".encode(),
}


HOSTILE = {
    "an invalid row": lambda client: client.hset(f"{PREFIX}rows", "x\x1b[2J", b"nonsense"),
    "a row of invalid numbers": lambda client: client.hset(
        f"{PREFIX}rows",
        "x",
        struct.pack("<5d", *[float("nan")] * 5) + msgspec.msgpack.encode(["seats"] + [1] * 12),
    ),
    "a row of deep lists": lambda client: client.hset(
        f"{PREFIX}rows", "x", struct.pack("<5d", *[1.0] * 5) + b"\x91" * 100_000
    ),
    "a share that is too short": lambda client: client.hset(
        f"{PREFIX}row:{QPS.name}", "other", b"short"
    ),
    "a share of infinity": lambda client: client.hset(
        f"{PREFIX}row:{QPS.name}", "other", struct.pack("<10d", *[float("inf")] * 10)
    ),
    "a ledger without an epoch": lambda client: client.hdel(f"{PREFIX}ledger", "epoch"),
    "an infinite time": lambda client: client.hset(f"{PREFIX}ledger", "now", "inf"),
    "a host without a time": lambda client: client.zadd(f"{PREFIX}seen", {"life-one": "-inf"}),
    "invalid news": lambda client: client.hset(f"{PREFIX}news", "x", b"\xc1"),
    "invalid names": lambda client: client.hset(f"{PREFIX}run:night:names", "x", "{"),
}


@pytest.fixture
def server(kv, monkeypatch):
    kv.client().flushall()
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    server = ClusterServer(read_address(None, {"ULTRAPAR_CLUSTER": kv.url}))
    server.read_facts()
    yield server
    server.close()


def join(server, name, run="night"):
    call = JoinCall(name=name, life=f"life of {name}", identity=IDENTITY.text(), lines=[(0, 50)])
    return server.claim(run, call).host


def claim(server, name, number, **facts):
    call = ClaimCall(host=number, life=f"life of {name}", **{"seq": 0} | facts)
    return server.claim("night", call)


class Sharing:
    """A host that renews, on a clock that tests advance."""

    def __init__(self, server, name, want, run="night"):
        self.server, self.name, self.want, self.run = server, name, want, run
        self.seq, self.answer = 0, None

    def renew(self, **facts):
        self.seq += 1
        held = [0, 0] if self.answer is None else [one.grant for one in self.answer.shares]
        uses = tuple(RowUse(n, want, 1) for n, want in zip(held, self.want, strict=True))
        said = {"epoch": 0 if self.answer is None else self.answer.epoch} | facts
        self.answer = self.server.renew(
            Renewal(
                host=self.name, incarnation=f"life-{self.name}", seq=self.seq, run=self.run,
                server_run_id=self.server.facts.run_id, clock="c", clock_ms=self.seq,
                rows=(SEATS, QPS), uses=uses, lanes=((0, 1),), **said,
            )
        )  # fmt: skip
        return self.answer


def silent_for_a_minute(kv, *numbers):
    for number in numbers:
        kv.client().zincrby(f"{PREFIX}run:night:seen", -60_000, number)


def shown(capsys, *words):
    code = main(["cluster", *words])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out + err


def status(capsys, *words):
    code, text = shown(capsys, "status", *words)
    assert code == 0, text
    return text


def two_hosts(server, **facts):
    """Two hosts, one of which uses all of a small limit."""
    numbers = {name: join(server, name) for name in ("one", "two")}
    claim(server, "one", numbers["one"], open=3, done=[], wants=[(0, 4)], said="2 in flight")
    claim(server, "one", numbers["one"], seq=1, done=[0, 1], failed=[2], open=1, said="2 in flight")
    claim(
        server,
        "two",
        numbers["two"],
        said="waits: other hosts have all of lab/key0's qps = 2",
    )
    names = {SEATS.name: ("lab/key0", "workers"), QPS.name: ("lab/key0", "qps")}
    server.name_rows("night", names)
    one, two = Sharing(server, "one", (5, 2)), Sharing(server, "two", (5, 2))
    for host in (one, two, one, two):
        host.renew(fresh=True, **facts)
    return one, two


def test_status_shows_hosts_cases_limits_and_waiting_hosts(server, capsys):
    two_hosts(server)
    text = status(capsys)
    assert "run night, began " in text
    assert ", pytest-ultrapar 9.8.7\n" in text
    assert "3 of 50 cases done (1 without an answer), 1 in progress, 46 not begun, " in text
    assert re.search(r"^  one +3 +1 +\S+ +2 in flight$", text, re.MULTILINE)
    waits = r"^  two +0 +0 +- +waits: other hosts have all of lab/key0's qps = 2$"
    assert re.search(waits, text, re.MULTILINE)
    # Waiting hosts come first.
    assert text.index("\n  two ") < text.index("\n  one ")
    (qps,) = re.findall(r"^  lab/key0's qps = 2: (.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"(one|two) 2, (one|two) 0 \(wants 2\)", qps)
    assert "lab/key0's workers = 5: " in text


def test_page_on_clusters_documents_the_fields_of_the_json(server, capsys):
    two_hosts(server, news=(notice_of(LaneNotice("lab/i/key0", for_s=60.0), "night", 0),))
    found = json.loads(status(capsys, "--json"))
    page = Path(__file__).parents[2].joinpath("docs/how-to/cluster.md").read_text(encoding="utf-8")
    section = page.split("`ultrapar cluster status --json` prints")[1].split("\n## ")[0]
    documented = {
        part.split("|")[0].replace("`", "").split()[-1]: {*re.findall(r"`(\w+)`", part)}
        for part in section.replace("\n| ", "\n|").split("\n|")[3:]
    }
    (run,), (row, _), (news,) = found["runs"], found["limits"], found["news"]
    for name, one in (
        ("runs", run), ("hosts", run["hosts"][0]), ("limits", row), ("shares", row["shares"][0]),
        ("news", news),
    ):  # fmt: skip
        assert {*one} - documented[name] == set(), name
    assert {*found} <= {*re.findall(r"`(\w+)`", section)}


def test_status_shows_how_long_a_new_server_keeps_rows_closed(server, capsys):
    Sharing(server, "one", (5, 2)).renew()
    text = status(capsys)
    assert re.search(
        r"key:abc:qps = 2: closed for another \d\.\d\d s, because the server restarted", text
    )
    assert "one 0 (2 on the way)" in text


def test_removed_and_paused_lanes_are_shown_with_their_reasons(server, capsys):
    def notice(lane, **facts):
        news = LaneNotice(f"lab/{lane}/key0", for_s=60.0, **facts)
        return notice_of(news, "night", round(time.time() * 1000))

    gone = notice("i", removes="key", reason="401: \x1b[31mno such key")
    Sharing(server, "one", (5, 2)).renew(news=(gone, notice("j")))
    text = status(capsys)
    assert "  lab/i/key0: key removed, run night: 401: \\x1b[31mno such key\n" in text
    assert re.search(r"  lab/j/key0: paused for another (59\.\d|60\.0) s, run night\n", text)
    assert {one["removes"] for one in json.loads(status(capsys, "--json"))["news"]} == {"key", ""}


def test_a_silent_host_comes_first_and_is_marked(server, kv, capsys):
    two_hosts(server)
    hosts = kv.client().hgetall(f"{PREFIX}run:night:hosts")
    silent_for_a_minute(kv, *(number for number, text in hosts.items() if b'"one"' in text))
    text = status(capsys)
    assert re.search(r"^  one .* silent for 6\d\.\d s, treated as dead$", text, re.MULTILINE)
    assert text.index("\n  one ") < text.index("\n  two ")


def test_hundreds_of_hosts_fit_on_a_screen(server, capsys):
    for n in range(200):
        join(server, f"host-{n}")
    # The rights of the first host have expired when a busy machine gets to the last one.
    for n in range(200):
        Sharing(server, f"host-{n}", (1, 1)).renew(fresh=True)
    text = status(capsys)
    assert len(text.splitlines()) < MOST_HOSTS + 20
    assert f"and {200 - MOST_HOSTS} more hosts (--all)" in text
    assert max(map(len, text.splitlines())) < 400
    assert re.search(r", \d+ more hosts 0 \(want \d+\)$", text, re.MULTILINE)
    assert len(status(capsys, "--all").splitlines()) > 200


@pytest.mark.parametrize(
    "written",
    [
        ("run", "lines", "nonsense"),
        ("run", "n_done", "many"),
        ("run", "n_open", "1" * 5000),
        ("run", "began_ms", "-1"),
        ("run", "unclaimed", '["a"]'),
        ("hosts", "7", "{"),
        ("open", "1", "x"),
        ("hosts", "7", "[" * 100_000),
        ("hosts", "7", '{"name": "x", "joined_ms": -1e308}'),
        ("seen", "1", "-inf"),
    ],
)
def test_a_run_damaged_by_another_writer_hides_no_other_run(server, kv, capsys, written):
    key, field, value = written
    two_hosts(server)
    join(server, "three", run="other")
    client, name = kv.client(), f"{PREFIX}run:night:{key}"
    client.zadd(name, {field: value}) if key == "seen" else client.hset(name, field, value)
    text = status(capsys)
    assert "run night: redis://" in text
    assert "run other, began" in text
    code, text = shown(capsys, "status", "night")
    assert code == 4
    assert "data that pytest-ultrapar did not write" in text


def test_control_characters_are_escaped(server, kv, capsys):
    two_hosts(server)
    nasty = "\x1b]0;title\x07\u202egnp.exe\nroot"
    told = {"name": f"h{nasty}", "joined_ms": 0, "said": nasty}
    kv.client().hset(f"{PREFIX}run:night:hosts", "7", json.dumps(told))
    kv.client().hset(f"{PREFIX}run:night:names", QPS.name, json.dumps([f"lab{nasty}", "qps"]))
    text = status(capsys)
    assert not {"\x1b", "\x07", "\u202e"} & {*text}
    assert "\nroot" not in text
    assert "\\x1b]0;title" in text


def test_error_of_a_server_without_auth_contains_no_password(capsys, monkeypatch):
    with KeyValueServer.start("--rename-command", "AUTH", "") as kv:
        monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url.replace("//", f"//user:{CANARY}@"))
        code, text = shown(capsys, "status")
    assert code == 4
    assert "rejected a command: unknown command 'AUTH'\n" in text.lower().replace("auth", "AUTH")
    assert CANARY not in text


@pytest.mark.parametrize(
    "record", ["nothing", "{}", '{"name":null}', '{"name":{}}', "[1]", "7", "null", "\xff"]
)
def test_a_broken_record_of_a_dead_host_stops_no_other_host(server, kv, record):
    one, two = join(server, "one"), join(server, "two")
    claim(server, "two", two, wants=[(0, 4)])
    kv.client().hset(f"{PREFIX}run:night:hosts", two, record)
    silent_for_a_minute(kv, two)
    said = claim(server, "one", one)
    assert (said.n_hosts, said.n_dead, said.unclaimed) == (1, 0, [50])


def test_no_host_is_called_dead_when_all_were_away(server, kv):
    numbers = {name: join(server, name) for name in ("one", "two", "three")}
    silent_for_a_minute(kv, *numbers.values())
    said = claim(server, "one", numbers["one"])
    assert (said.n_hosts, said.n_dead) == (1, 0)
    silent_for_a_minute(kv, numbers["one"])
    call = JoinCall(
        name="two", life="life of two", identity=IDENTITY.text(), lines=[(0, 50)], comes_back=True
    )
    assert server.claim("night", call).n_dead == 0


def test_a_drained_host_begins_no_more_cases(server, capsys):
    numbers = {name: join(server, name) for name in ("one", "two")}
    assert shown(capsys, "drain", "night", "one") == (
        0,
        "host one will start no more cases of run night\n",
    )
    assert claim(server, "one", numbers["one"], wants=[(0, 4)]).given == []
    assert claim(server, "two", numbers["two"], wants=[(0, 4)]).given == [0, 1, 2, 3]
    assert re.search(r"^  one .*drained: starts no more cases", status(capsys), re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drain", "night", "none"], 'run night has no host "none"; its hosts are: one'),
        (["drain", "other", "one"], 'has no run "other"; its runs are: night'),
        (["forget", "night"], "run night is in progress on one; stop or drain its hosts first"),
        (["forget", "other"], 'has no run "other"'),
        (
            ["reopen", "night", "whole"],
            "run night is in progress on one; stop or drain its hosts first",
        ),
        (["status", "other"], 'has no run "other"'),
        (
            ["status", "--cluster", "redis://:canary@h"],
            "error: --cluster contains a password, and ",
        ),
        (
            ["--cluster", "redis://:canary@h", "status"],
            "error: --cluster contains a password, and ",
        ),
        (
            ["--cluster=redis://:canary@h", "forget", "x"],
            "error: --cluster contains a password, and ",
        ),
    ],
)
def test_an_impossible_action_is_refused_in_one_sentence(server, capsys, words, said):
    join(server, "one")
    code, text = shown(capsys, *words)
    assert code == 4
    assert said in text
    assert "canary" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: ACTION"),
        (["forget", "night", "--all"], "unrecognized arguments: --all; the options are --cluster"),
    ],
)
def test_a_bad_argument_is_reported_with_the_usage(capsys, words, said):
    with pytest.raises(SystemExit, match="4"):
        main(["cluster", *words])
    err = capsys.readouterr().err
    assert err.startswith(f"usage: ultrapar cluster {words[0] if words[1:] else ''}".rstrip())
    # Some versions of Python quote the choices.
    assert said.replace("'", "") in err.replace("'", "")


def test_forget_removes_a_run_without_hosts_completely(server, kv, capsys):
    two_hosts(server)
    client = kv.client()
    silent_for_a_minute(kv, *client.zrange(f"{PREFIX}run:night:seen", 0, -1))
    said = "removed run night from the server; its run directories on the hosts remain\n"
    assert shown(capsys, "forget", "night") == (0, said)
    assert client.keys(f"{PREFIX}run:night:*") == []


def test_a_run_damaged_by_another_writer_can_be_forgotten(server, kv, capsys):
    two_hosts(server)
    kv.client().hset(f"{PREFIX}run:night:run", "lines", "nonsense")
    code, text = shown(capsys, "forget", "night")
    assert code == 0, text
    assert "run night: " not in status(capsys)


def test_days_stay_closed_while_hosts_may_still_report_their_counts(server, kv, capsys):
    day = RowSpec(name="key:abc:rpd", kind="counted", amount=500, window_ms=86_400_000)
    call = Renewal(
        host="one", incarnation="life", seq=1, run="r", server_run_id="", clock="c", clock_ms=0,
        rows=(day,), uses=(RowUse(0, 5, 1),), lanes=((0,),),
    )  # fmt: skip
    epoch = server.renew(call).epoch
    kv.client().hset(f"{PREFIX}ledger", "run_id", "another")
    server.renew(msgspec.structs.replace(call, seq=2, epoch=epoch))
    code, text = shown(capsys, "reset-day")
    assert code == 0
    assert re.match(r"all limits stay closed for another \d\.\d\d s, because the server ", text)


@pytest.mark.cpu_s(3)
def test_hosts_that_have_left_are_known_if_they_finished_cases(server):
    """The last host merges only if it finds the directories of all hosts."""
    for name, done in (("one", [0]), ("two", [1]), ("three", [])):
        number = join(server, name)
        claim(server, name, number, open=1, wants=[(0, 2)])
        late = {"done": done} if name == "two" else {}
        if not late:
            claim(server, name, number, seq=1, done=done)
        server.claim("night", LeaveCall(host=number, life=f"life of {name}", **late))
    state = server.run("night")
    assert (state.hosts, state.finishers) == ((), ("one", "two"))


@pytest.mark.parametrize("what", HOSTILE)
def test_foreign_data_among_the_limits_is_reported_in_one_sentence(server, kv, capsys, what):
    two_hosts(server)
    HOSTILE[what](kv.client())
    code, text = shown(capsys, "status")
    assert code == 4
    assert "contains data that pytest-ultrapar did not write" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("what", ANSWERS)
def test_another_program_at_the_port_is_reported_in_one_sentence(capsys, monkeypatch, what):
    class Answering(socketserver.StreamRequestHandler):
        def handle(self):
            while self.request.recv(4096):
                self.wfile.write(ANSWERS[what])

    class Program(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Program(("127.0.0.1", 0), Answering) as program:
        threading.Thread(target=program.serve_forever, args=(0.01,)).start()
        port = program.server_address[1]
        monkeypatch.setenv("ULTRAPAR_CLUSTER", f"redis://user:{CANARY}@127.0.0.1:{port}")
        try:
            code, text = shown(capsys, "status")
        finally:
            program.shutdown()
    assert code == 4
    assert "ultrapar cluster: error: " in text
    assert len(text.splitlines()) == 1
    assert CANARY not in text


def test_a_run_shows_the_hosts_and_cases_of_all_shards():
    host = HostState("one", 0.0, 60.0, 30, 0, 30.0, drained=False, said="")
    facts = {"identity": "", "began_s": 60.0, "n_failed": 0, "n_open": 0, "finishers": ()}
    counts = {"n_cases": 100, "n_done": 30, "n_unclaimed": 70}
    one = RunState(name="r:1/2", hosts=(host,), **counts, **facts)
    run = replace(one, name="r", n_cases=0, n_done=0, n_unclaimed=0, hosts=())
    whole = whole_of(run, [one, replace(one, name="r:2/2")])
    assert (whole.n_cases, whole.hosts, whole.left_s) == (200, (host, host), 140)
