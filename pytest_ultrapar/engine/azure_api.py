"""What Azure OpenAI does otherwise than OpenAI: the address, and the header with the key.

The deployment stands in the URL and the body names no model. Bodies, streams and errors have
OpenAI's shape; what Azure adds to them (results of its content filter, pieces of a stream without
choices) is read over. Its rate-limit headers are numbers of seconds, and -1 or 0 where it does not
say (`allowance.parse_allowance`).
"""

from __future__ import annotations

from urllib.parse import quote

from pytest_ultrapar.engine.openai_api import PATH


def url(base_url: str, deployment: str, api_version: str) -> str:
    """Where requests for a deployment go."""
    path = f"/openai/deployments/{quote(deployment, safe='')}{PATH}"
    return f"{base_url.rstrip('/')}{path}?api-version={quote(api_version, safe='')}"


def authentication(token: str) -> dict[str, str]:
    """The header that opens the door."""
    return {"api-key": token}
