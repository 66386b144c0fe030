"""What the pool's values may come from, and the note of where each one did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_ultrapar.pool.environment import Environment, Overrides, Setting, resolve
from pytest_ultrapar.pool.model import EffectiveValue


@dataclass(frozen=True, slots=True)
class Sources:
    """Command line, environment and file of one load.

    Attributes:
        overrides: What the command line says.
        environ: All variables, since `ports_env` may name any.
        environment: The program's own variables, typed.
        file_name: How origins call the pool file.
        effective: The values noted so far.
    """

    overrides: Overrides
    environ: Mapping[str, str]
    environment: Environment
    file_name: str
    effective: list[EffectiveValue] = field(default_factory=list)

    def note(self, name: str, value: Setting, origin: str | None = None) -> None:
        """Note a value in force, by default one of the file; None is nothing to note."""
        if value is not None:
            self.effective.append(EffectiveValue(name, value, origin or self.file_name))

    def max_workers(self, file: int | None) -> EffectiveValue:
        """The bound on requests in flight over the whole pool; None is unlimited."""
        return resolve(
            "max_workers",
            command_line=self.overrides.max_workers,
            environment=self.environment.max_workers,
            file=file,
            default=None,
            file_name=self.file_name,
        )

    def rate_mode(self, file: str | None) -> EffectiveValue:
        """The rate mode in force, `fixed` unless somebody says otherwise."""
        return resolve(
            "rate_mode",
            command_line=self.overrides.rate_mode,
            environment=self.environment.rate_mode,
            file=file,
            default="fixed",
            file_name=self.file_name,
        )
