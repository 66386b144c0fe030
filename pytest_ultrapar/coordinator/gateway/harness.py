"""The command that a gateway runs: it is told where to ask, and ends as in a shell."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import threading
from collections import ChainMap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


_FAMILIES = {
    "/chat/completions": (
        "OPENAI_BASE_URL OPENAI_API_BASE",
        "AZURE_OPENAI_ENDPOINT AZURE_API_BASE",
        "OPENAI_API_KEY AZURE_OPENAI_API_KEY AZURE_API_KEY",
    ),
    "/v1/messages": (
        "",
        "ANTHROPIC_BASE_URL ANTHROPIC_API_BASE ANTHROPIC_API_URL",
        "ANTHROPIC_API_KEY",
    ),
    ":generateContent": (
        "",
        "GOOGLE_GEMINI_BASE_URL GOOGLE_BASE_URL",
        "GEMINI_API_KEY GOOGLE_API_KEY GOOGLE_GENERATIVE_AI_API_KEY",
    ),
}
"""What clients of a provider ask, and the variables that they read: for the address with `/v1`, for
the one without, and for the key. Those of its own SDK come first; others are LiteLLM's, LangChain's
(`OPENAI_API_BASE`, `ANTHROPIC_API_URL`), inspect_ai's (`GOOGLE_BASE_URL`) and the AI SDK's."""


def variables(paths: Collection[str], address: str, token: str) -> list[dict[str, str]]:
    """Variables for the clients of each provider; the first and the last are address and key.

    Args:
        paths: What the pool's lanes serve. Variables for what none of them serves are left out: its
            clients may ask their provider beside the gateway.
        address: Of the gateway.
        token: Of its clients.
    """
    return [
        {
            **dict.fromkeys(versioned.split(), f"{address}/v1"),
            **dict.fromkeys(plain.split(), address),
            **dict.fromkeys(reversed(keys.split()), token),
        }
        for path, (versioned, plain, keys) in _FAMILIES.items()
        if any(path in one for one in paths)
    ]


def environment(own: Mapping[str, str], told: list[dict[str, str]], host: str) -> dict[str, str]:
    """The variables of a command: those of this process, with others for its clients.

    Args:
        own: Of this process.
        told: Of the gateway, as of `variables`.
        host: Of its address, which no proxy knows.
    """
    # Of 88 s, which count the line; as other SDKs wait.
    found = {"DEEPEVAL_PER_ATTEMPT_TIMEOUT_SECONDS_OVERRIDE": "600", **own}
    # By which promptfoo goes before it looks at an address.
    found.pop("OPENAI_API_HOST", None)
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, (own.get(name), host)))
    return dict(ChainMap(*told, found))


def look_up(name: str) -> None:
    """Look whether a command is there, before anything is begun for it.

    Raises:
        OSError: It is not, or it cannot be run.
    """
    if shutil.which(name) is None:
        kind = errno.EACCES if os.path.exists(name) else errno.ENOENT  # noqa: PTH110 - a word
        raise OSError(kind, "command not found" if kind == errno.ENOENT else os.strerror(kind))


class Harness:
    """A command that runs.

    Args:
        command: Its words.
        variables: All of its environment.
        ended: Called in a thread of its own, once it has.

    Raises:
        OSError: It cannot be run.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], ended: Callable[[], object]
    ) -> None:
        self._process = subprocess.Popen(command, env=variables)  # noqa: S603 - the user's own
        self._ended = ended
        threading.Thread(target=self._wait, name="ultrapar-command", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        self._ended()

    def pass_on(self, number: int) -> None:
        """Send it a signal that this process got, unless the terminal has sent it to both."""
        if number != signal.SIGINT or not _has_terminal():
            self._process.send_signal(number)

    def end(self) -> int:
        """Its exit code as a shell has it; it is ended if it goes on."""
        if self._process.poll() is None:
            self._process.terminate()
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Whether Ctrl-C on the terminal goes to this process, and so to its command."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123 - no path is asked for
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
