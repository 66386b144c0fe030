"""Choose the names, such as `model`, by which results are laid out in tables.

The names come from marks or from the parameters of tests. All functions are pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.records import Case, Scalar

TEST = "test_name"
MOST_VALUES = 40
"""If a parameter has more values than this, a table with a row for each value is not useful."""
_MOST_COLUMNS = 12
_LEAST_CASES = 2
"""The minimum number of cases per model and parameter value, on average. The solved share of a
single case would be meaningless."""


class Uses:
    """Collects which parameters each test uses. `tables` comes from `cases_file.read_tables`."""

    def __init__(self, tables: Mapping[str, tuple[str, ...]], cases: Iterable[Case] = ()) -> None:
        self._tables = tables
        self._asked: dict[str, tuple[str, ...]] = {}
        self._models: dict[str, Counter[str]] = {}
        self._values: dict[str, dict[str, dict[str, Scalar]]] = {}
        for case in cases:
            self.add(case)

    def add(self, case: Case) -> None:
        """Add one case."""
        test = case.test
        if test not in self._asked:
            self._asked[test] = self._tables.get(test) or self._tables.get(case.suite, ())
            self._models[test], self._values[test] = Counter(), {}
        self._models[test][case.model] += 1
        for name, value in case.facts.items():
            found = self._values[test].setdefault(name, {})
            # A dict or list is not a useful label.
            if value is not None and len(found) <= MOST_VALUES:
                text = str(value)
                if not text.startswith(("{", "[")):
                    found[text] = value

    def layouts(self) -> dict[str, tuple[str, ...]]:
        """For each test, return the names by which its results are laid out."""
        found = {}
        for test, asked in self._asked.items():
            sizes = {name: self._values[test][name].keys() for name in self._dimensions(test)}
            # Parameters that only count (0, 1, 2 and so on) are not useful.
            own = [
                name
                for name, values in sizes.items()
                if len(values) <= _MOST_COLUMNS and values != {*map(str, range(len(values)))}
            ]
            found[test] = asked or ("model", *own[:1])
        return found

    def dimensions(self, summary_by: Iterable[str]) -> list[str]:
        """Return the dimensions to compare models by: test, names from marks, useful parameters."""
        asked = [*summary_by, *(name for own in self._asked.values() for name in own)]
        used = [name for test in self._asked for name in self._dimensions(test)]
        known = {name for own in self._values.values() for name in own}
        found = [name for name in dict.fromkeys([*asked, *used]) if name in known]
        return [TEST, *found] if len(self._asked) > 1 and TEST not in known else found

    def _dimensions(self, test: str) -> list[str]:
        """Return a test's useful parameters: texts before numbers, and then by number of values."""
        models, values = self._models[test], self._values[test]
        most = min(MOST_VALUES, models.total() / len(models) / _LEAST_CASES)
        found = [name for name, own in values.items() if 1 < len(own) <= most]
        kinds = {name: {type(one) for one in values[name].values()} for name in found}
        return sorted(found, key=lambda name: (kinds[name] <= {int, float}, len(values[name])))


def shown_tests(tests: Iterable[str]) -> dict[str, str]:
    """Return the text to show for each test: its name, or its node id if its name is not unique."""
    alike = by_key((test.partition("::")[2], test) for test in dict.fromkeys(tests))
    return {test: name if len(own) == 1 else test for name, own in alike.items() for test in own}
