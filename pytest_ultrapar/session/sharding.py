"""The tests of one shard, selected while pytest generates them.

Tests of other shards never become items, because no process has enough memory for ten million
items. The shard of a test depends only on its case id (path below the project, name, parameters,
run seed). So shards do not need to know anything about each other, and together they run each case
exactly once. Tests that are not cases are divided in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.pool.shard import is_in
from pytest_ultrapar.session import collection, internals, run_config, selection
from pytest_ultrapar.session.parameter_text import ContentDigests
from pytest_ultrapar.store.cases_file import Generated

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_ultrapar.pool.settings import Shard

_IDS = 2**64


class ShardCut:
    """The plugin that keeps only the tests of one shard. It runs in every process that collects."""

    def __init__(self, config: pytest.Config, shard: Shard) -> None:
        self._config = config
        self._shard = shard
        self._n_first = run_config.settings(config)[0].repeats.n_first
        self._n_cases = self._sum = 0
        # Tests whose items were cut. Each test still has an item, so no other object can get its
        # `id()`.
        self._cut: set[int] = set()
        self._suites: set[str] = set()
        self._shares: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None]:
        """Keep only the `_calls` of the shard. Runs last, when all parameters are known."""
        internals.parametrize_lazily(metafunc)
        yield
        definition = metafunc.definition
        is_case = bool(internals.prefetched_for(metafunc))
        if is_case:
            self._note(metafunc)
        inner = definition.nodeid.split("::", 1)[1]
        seed = run_config.settings(self._config)[0].seed
        path, shard = definition.path, self._shard

        def is_kept(parameters: str) -> bool:
            case_id = collection.case_id_at(self._config, path, inner + parameters, seed)
            if is_case:
                self._n_cases += 1
                self._sum += int(case_id, 16)
            return is_in(shard, case_id)

        if internals.select_calls(metafunc, is_kept):
            self._cut.add(internals.test_identity(definition))

    def _note(self, metafunc: pytest.Metafunc) -> None:
        """Record facts about a test that later steps need but that removed items do not show."""
        suite = collection.suite_at(metafunc.definition.path)
        self._suites.add(suite)
        source = collection.marked(metafunc.definition, selection.TAKEN_FROM)
        if isinstance(source, str) and source != suite:
            self._shares[suite] = source
        name = collection.marked(metafunc.definition, selection.REPEATS_OVER)
        if self._n_first is None or not isinstance(name, str):
            return
        first = self._config.stash.setdefault(selection.first_key, {})
        values = first.setdefault((metafunc.definition.path, name), set())
        digests = ContentDigests()
        for value in internals.values_of(metafunc, name):
            if value is not internals.NO_VALUE and len(values) < self._n_first:
                values.add(digests.key(value))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Remove other shards' items that pytest does not generate, such as doctests.

        Also store the number of cases in all shards together, and a digest. The digest shows
        whether all shards were selected from the same cases.
        """
        seed = run_config.settings(config)[0].seed
        kept = [
            item
            for item in items
            if internals.test_identity(item) in self._cut
            or is_in(self._shard, collection.case_id_of(item, seed))
        ]
        collection.keep(items, kept)
        digest = f"{self._sum % _IDS:016x}"
        config.stash[selection.generated_key] = Generated(self._n_cases, digest)
        for suite, source in self._shares.items():
            if source in self._suites:
                config.stash.setdefault(collection.mark_faults_key, []).append(
                    f"suite {suite} takes answers from {source} ({selection.TAKEN_FROM}), which "
                    f"other shards run: run {source} first, merge its shards (ultrapar merge) and "
                    f"run {suite} with --ultrapar-reuse MERGED, or leave out "
                    f"--ultrapar-shard {self._shard}"
                )
