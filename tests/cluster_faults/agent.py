"""The first process of a machine: starts commands, reaps processes, and forwards connections.

It reads lines of JSON from its standard input and ends when that closes, so that no process of a
machine outlives the harness: in a PID namespace the kernel then kills all others. It needs no
package: `python -SsE agent.py`.

    {"forward": [["10.77.0.2", 8123, "127.0.0.1", 8123]]}     -> {"done": "forward"}
    {"run": 1, "command": [...], "env": {...}, "cwd": "/x", "output": "/x/out.txt"}
                                                              -> {"ended": 1, "code": 0}
"""

import asyncio
import contextlib
import json
import os
import signal
import sys

CHUNK = 65536


class Agent:
    def __init__(self):
        self._number_of = {}  # by process
        self._servers = []
        self._tasks = set()

    async def serve(self):
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            told = json.loads(line)
            if "run" in told:
                self._run(told)
            else:
                for address, port, *target in told["forward"]:
                    await self._forward(address, port, target)
                say({"done": "forward"})
        self._end()

    def _end(self):
        for pid in self._number_of:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        # Connections end with this process, so there is no need to report them.
        os._exit(0)

    def _run(self, told):
        pid = os.fork()
        if pid == 0:
            _become(told)
        self._number_of[pid] = told["run"]

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            # The others are orphans, which the first process of a namespace inherits.
            number = self._number_of.pop(pid, None)
            if number is not None:
                say({"ended": number, "code": os.waitstatus_to_exitcode(status)})

    async def _forward(self, address, port, target):
        async def connected(reader, writer):
            try:
                far_reader, far_writer = await asyncio.open_connection(*target)
            except OSError:
                writer.transport.abort()
                return
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))

        self._servers.append(await asyncio.start_server(connected, address, port))


async def _pass(reader, writer):
    """Forward all bytes and the end; if one side is gone, close the other side, too."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()
    writer.close()


def _become(told):
    """Become the command, in a new session; runs in the child."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(told["cwd"])
        null = os.open(os.devnull, os.O_RDONLY)
        output = os.open(told["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, at in ((null, 0), (output, 1), (output, 2)):
            os.dup2(fd, at)
        os.closerange(3, 256)
        os.execve(told["command"][0], told["command"], told["env"])
    except OSError as error:
        os.write(2, f"{told['command'][0]}: {error!r}\n".encode())
    finally:
        os._exit(127)


def say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Agent().serve())
