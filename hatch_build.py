"""What a package index shows: README with absolute links, and the project's addresses.

The repository's address is that of the remote `origin` where the package is built. Built without
one, README names files of the repository in place of links to them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class IndexPage(MetadataHookInterface):
    """Fills `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, object]) -> None:
        """Called by hatchling."""
        root = Path(self.root)
        address = address_of(root)
        text = for_index((root / "README.md").read_text(encoding="utf-8"), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address)


def address_of(root: Path) -> str | None:
    """The https address of `origin`; None where it has none, such as a path of this machine."""
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
    """Markdown whose links and pictures do not depend on where it is shown."""

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
