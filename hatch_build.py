"""The page on the package index: the README with absolute links, and the project's URLs.

The repository's URL is the URL of the remote `origin` on the machine that builds the package.
Without a remote, the README contains the paths of files instead of links.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class IndexPage(MetadataHookInterface):
    """Fills `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set the two fields. Hatchling calls this."""
        root = Path(self.root)
        address = address_of(root)
        text = for_index((root / "README.md").read_text(encoding="utf-8"), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address)


def address_of(root: Path) -> str | None:
    """The https URL of `origin`; None without a remote, or for a local path."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.fullmatch(
        r"(?:https://|ssh://git@|git@)(?:[^@/]*@)?([\w.-]+)[:/](.+?)(?:\.git)?/?",
        done.stdout.strip(),
    )
    return f"https://{found[1]}/{found[2]}" if found else None


def for_index(text: str, address: str | None) -> str:
    """The Markdown with links and pictures that work everywhere."""

    def replace(found: re.Match[str]) -> str:
        mark, name, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        if address is None:
            return "" if mark else f"{name} (`{target}`)"
        return f"{mark}[{name}]({address}/{'raw' if mark else 'blob'}/HEAD/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", replace, text)


def urls(address: str | None) -> dict[str, str]:
    """The `Project-URL`s."""
    if address is None:
        return {}
    return {
        "Source": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
