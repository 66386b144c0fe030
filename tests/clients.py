"""Clients of others through the gateway, judged by the server's log: `python -m tests.clients`.

They are asked in an environment that is made for them, which takes minutes.
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
    """Ask each in five ways; raises where one of them is wrong."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        subprocess.run([sys.executable, "-m", "venv", home / "clients"], check=True)
        python = home / "clients" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        ask_in_each_way(home, str(python), CLIENTS)
    sys.stdout.write(f"{', '.join(CLIENTS)}: solved in each way, within the limits\n")


if __name__ == "__main__":
    main()
