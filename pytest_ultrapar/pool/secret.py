"""API keys, read from the environment and kept out of all output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from pytest_ultrapar.pool.field_checks import Location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pytest_ultrapar.pool.model import Pool


# The names come from the documentation of each tool. Keys of model APIs are omitted on purpose:
# gateways and servers on many hosts accept OPENAI_API_KEY.
_OF_OTHER_TOOLS = re.compile(
    "AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|CONTAINER_AUTHORIZATION_TOKEN)"
    r"|(AZURE|ARM)_CLIENT_SECRET|AZURE_STORAGE_\w+|GOOGLE_APPLICATION_CREDENTIALS|CLOUDSDK_\w+"
    r"|(GITHUB|GH|GITLAB)_TOKEN|ACTIONS_\w+_TOKEN|CI_(JOB|REGISTRY|DEPLOY)_\w+|SYSTEM_ACCESSTOKEN"
    r"|(NPM|NODE_AUTH)_TOKEN|PYPI_\w*TOKEN|(TWINE|UV|PIP|POETRY|CARGO)_\w+"
    r"|DOCKER_\w+|KUBE\w+|SSH_\w+|VAULT_TOKEN|PGPASSWORD|(DATABASE|REDIS)_URL|ULTRAPAR_\w+"
)
_GITHUBS = re.compile(
    r"(.+\.)?(github\.ai|github\.com|githubcopilot\.com)|models\.inference\.ai\.azure\.com"
)
"""Host names of services that serve models and accept GitHub's own tokens."""


def refuse_of_others(location: Location, variable: str, hosts: Collection[str] = ()) -> None:
    """Check that a variable named in a pool file does not hold another tool's credential.

    To use such a credential on purpose, a user copies it to another variable. No field in the
    file can allow it, because someone other than the user may have written the file.

    Args:
        location: The place where the file names the variable.
        variable: The name of the variable.
        hosts: All hosts that would receive the variable's value; empty unless they are known for
            certain.

    Raises:
        ConfigError: The variable holds such a credential. A GitHub token is allowed if there are
            `hosts` and all of them accept it.
    """
    if not _OF_OTHER_TOOLS.fullmatch(variable):
        return
    if variable in {"GITHUB_TOKEN", "GH_TOKEN"} and hosts and all(map(_GITHUBS.fullmatch, hosts)):
        return
    to = f" and would be sent to {', '.join(sorted(hosts))}" if hosts else ""
    location.refuse(
        f"names {variable}: its value is a credential for another tool{to}; to use it on purpose, "
        f'copy it to another variable and name that one: MY_API_KEY="${variable}"'
    )


class Secret:
    """A secret that is hidden in tracebacks, logs and tables; only `reveal()` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself, only for the header of a request."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return format("***", format_spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        # A pickle would carry the secret to another process or into a file, unencrypted.
        raise TypeError("a Secret cannot be pickled")


def read_secrets(
    pool: Pool, environ: Mapping[str, str], models: Collection[str] | None = None
) -> dict[tuple[str, str], Secret]:
    """Read the secrets, by (provider, key). Keys without a secret (simulated, local) are omitted.

    Each secret is a valid header value.

    Args:
        pool: The pool.
        environ: The environment's variables, usually `os.environ`.
        models: Only keys that serve one of these models are read; None means the keys of all lanes.

    Raises:
        ConfigError: Variables are unset or empty (the message names all of them), or a value cannot
            be a key.
    """
    serving = {
        (lane.provider, lane.key) for lane in pool.lanes if models is None or lane.model in models
    }
    needed = [need for need in _named(pool) if need[1] in serving]
    missing = [(where, env) for where, _, env in needed if not environ.get(env, "").strip()]
    if missing:
        (where, first), *more = missing
        others = list(dict.fromkeys(env for _, env in more if env != first))
        also = f"; so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
        needs = "names" if pool.has_file else "needs"
        where.refuse(f"{needs} the environment variable {first}, which is unset or empty{also}")
    secrets: dict[tuple[str, str], Secret] = {}
    for where, key, env in needed:
        text = environ[env].strip()
        if not (text.isascii() and text.isprintable() and " " not in text):
            where.refuse(
                f"names {env}, whose value cannot be an API key: it contains blanks, line breaks"
                " or non-ASCII characters"
            )
        secrets[key] = Secret(text)
    return secrets


def _named(pool: Pool) -> Iterator[tuple[Location, tuple[str, str], str]]:
    """Yield, for each key with a variable: its place, its provider and name, and the variable."""
    for p, provider in enumerate(pool.providers):
        if provider.is_simulated:
            continue
        for k, key in enumerate(provider.keys):
            if key.env is not None:
                where = Location(pool.path).at("provider").item(p).at("keys").item(k).at("env")
                if not pool.has_file:
                    where = Location(pool.path, provider.models[0].name)
                yield where, (provider.name, key.name), key.env
