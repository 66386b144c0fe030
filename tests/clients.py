"""Other clients through the gateway, judged by the server's log: `python -m tests.clients`.

The program installs them in a new environment, which takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.plugin.test_gateway import ask_in_each_way

PACKAGES = ("litellm", "mcp", "langchain-openai", "pydantic-ai-slim[openai]")
CLIENTS = ("litellm", "langchain", "pydantic_ai", "node")


def main() -> None:
    """Send requests with each client in five ways; raise an error if an answer is wrong."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        subprocess.run([sys.executable, "-m", "venv", home / "clients"], check=True)
        python = home / "clients" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        ask_in_each_way(home, str(python), CLIENTS)
    sys.stdout.write(f"{', '.join(CLIENTS)}: each way solved, within the limits\n")


if __name__ == "__main__":
    main()
