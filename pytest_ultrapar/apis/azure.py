"""What Azure OpenAI does otherwise than OpenAI: the address, and the header with the key."""

from __future__ import annotations

from urllib.parse import quote

from pytest_ultrapar.apis.openai import MODELS_PATH, PATH


def url(base_url: str, deployment: str, api_version: str) -> str:
    """Where requests for a deployment go."""
    return _resource(base_url, f"/deployments/{quote(deployment, safe='')}{PATH}", api_version)


def models_url(base_url: str, api_version: str) -> str:
    """Where an account lists the models that it could deploy; its deployments are not listed."""
    return _resource(base_url, MODELS_PATH, api_version)


def authentication(token: str) -> dict[str, str]:
    """The header that opens the door."""
    return {"api-key": token}


def _resource(base_url: str, path: str, api_version: str) -> str:
    return f"{base_url.rstrip('/')}/openai{path}?api-version={quote(api_version, safe='')}"
