"""Roles: models that cases use in addition to the model under test.

By default, no cases are made for a model that has a role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.field_checks import check_name, did_you_mean, shown, shown_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_ultrapar.pool.field_checks import Location
    from pytest_ultrapar.pool.file import ModelTable, PoolFile
    from pytest_ultrapar.pool.model import EffectiveValue
    from pytest_ultrapar.pool.setting_values import Sources

_NOTED = "role {} model"


def build_roles(location: Location, file: PoolFile, sources: Sources) -> dict[str, str]:
    """Return the model of each role, in the order of the file, and record the roles in `sources`.

    Raises:
        ConfigError: A role's name cannot be part of a column name, or its model is unknown.
    """
    names = list(dict.fromkeys(table.name for _, table in _models(location, file)))
    roles = {}
    for role, table in file.role.items():
        check_name(location.at("role"), role)
        where = location.at("role").at(role).at("model")
        if table.model not in names:
            meant = did_you_mean(table.model, names, form='"{}"')
            allowed = shown_text(", ".join(names))
            where.refuse(
                f"must name a model in the pool (got {shown(table.model)}){meant}; the pool has "
                f"{allowed}"
            )
        roles[role] = table.model
        sources.note(_NOTED.format(role), table.model)
    return roles


def roles_of(effective: Iterable[EffectiveValue]) -> dict[str, str]:
    """The model of each role, read from the values that were in force in a run."""
    before, after = _NOTED.split("{}")
    return {
        one.name.removeprefix(before).removesuffix(after): str(one.value)
        for one in effective
        if one.name.startswith(before) and one.name.endswith(after)
    }


def roles_differ(then: Iterable[EffectiveValue], now: Iterable[EffectiveValue]) -> Iterator[str]:
    """Yield a sentence for each role that exists in both runs, but with different models."""
    models = roles_of(then)
    for role, model in roles_of(now).items():
        if models.get(role, model) != model:
            yield f"the model for role {role} was {models[role]} and is now {model}"


def models_without_cases(
    location: Location, file: PoolFile, roles: Mapping[str, str]
) -> frozenset[str]:
    """The names of the models that get no cases: by default, those that have a role.

    The field `subject` in a model's table overrides this default.

    Raises:
        ConfigError: `subject` differs between two tables of one model, or no model gets cases.
    """
    said: dict[str, tuple[Location, bool]] = {}
    names = set()
    for where, table in _models(location, file):
        names.add(table.name)
        if table.subject is None:
            continue
        place, earlier = said.setdefault(table.name, (where, table.subject))
        if earlier is not table.subject:
            where.at("subject").refuse(
                f"must be {shown(earlier)}, as in {place.at('subject').path}: both tables are for "
                f"the model {table.name}"
            )
    in_roles = set(roles.values())
    caseless = {
        name for name in names if not (said[name][1] if name in said else name not in in_roles)
    }
    if caseless == names:
        location.at("provider").refuse(
            "has no model that gets cases: every model has a role or subject = false; to measure "
            "a model that has a role, write subject = true"
        )
    return frozenset(caseless)


def _models(location: Location, file: PoolFile) -> Iterator[tuple[Location, ModelTable]]:
    for index, provider in enumerate(file.provider):
        where = location.at("provider").item(index).at("model")
        yield from ((where.item(at), table) for at, table in enumerate(provider.model))
