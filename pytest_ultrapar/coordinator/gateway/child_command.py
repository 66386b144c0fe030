"""The command that a gateway runs, with the gateway's address in its environment."""

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
"""For each path that a provider's clients use, three lists of variables: for the address with
`/v1`, the address without `/v1`, and the key. The variables of the provider's own SDK come
first. The others belong to LiteLLM, LangChain (`OPENAI_API_BASE`, `ANTHROPIC_API_URL`), inspect_ai
(`GOOGLE_BASE_URL`) and the AI SDK."""


def variables(paths: Collection[str], address: str, token: str) -> list[dict[str, str]]:
    """Return the variables for the clients of each provider: addresses first, then keys.

    Args:
        paths: The paths that the pool's lanes serve. Variables for other paths are left out, so
            that clients that use those paths can still reach their provider without the gateway.
        address: Address of the gateway.
        token: Token for the gateway's clients.
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
    """Return the environment of a command: this process's variables and the gateway's.

    Args:
        own: Variables of this process.
        told: Variables of the gateway, from `variables`.
        host: Host name in the gateway's address. Requests to it must not go through a proxy.
    """
    # DeepEval's default timeout of 88 s includes the time that a request waits for the limits.
    # Other SDKs wait 600 s.
    found = {"DEEPEVAL_PER_ATTEMPT_TIMEOUT_SECONDS_OVERRIDE": "600", **own}
    # promptfoo would use this variable instead of the gateway's address.
    found.pop("OPENAI_API_HOST", None)
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, (own.get(name), host)))
    return dict(ChainMap(*told, found))


def look_up(name: str) -> None:
    """Check that a command exists, before the gateway starts.

    Raises:
        OSError: The command does not exist, or cannot be run.
    """
    if shutil.which(name) is None:
        kind = errno.EACCES if os.path.exists(name) else errno.ENOENT  # noqa: PTH110 - a word
        raise OSError(kind, "command not found" if kind == errno.ENOENT else os.strerror(kind))


class ChildCommand:
    """A running command.

    Args:
        command: The program and its arguments.
        variables: The command's whole environment.
        ended: Called on a separate thread when the command has ended.

    Raises:
        OSError: The command cannot be run.
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
        """Pass a signal on to the command, unless the terminal has already done so."""
        if number != signal.SIGINT or not _has_terminal():
            self._process.send_signal(number)

    def end(self) -> int:
        """Terminate the command if it is still running; return its exit code as a shell does."""
        if self._process.poll() is None:
            self._process.terminate()
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Whether Ctrl-C in the terminal reaches this process, and therefore also its command."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123 - no path is asked for
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
