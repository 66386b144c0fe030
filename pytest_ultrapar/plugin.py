"""The pytest plugin: options, marks, hooks and fixtures. With a pool, it registers more plugins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar import hooks
from pytest_ultrapar.fixtures import case, grade, llm, model, ultrapar_repeat
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.session import compatibility, options, own_imports
from pytest_ultrapar.session.async_tests import AsyncTests
from pytest_ultrapar.session.options import INPUT, NEEDED, usage_errors

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.coordinator.run_gate import RunGate
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case

_planned_workers_key = pytest.StashKey[int]()
"""The number of workers that the planned run would have. The plan itself starts no workers."""

__all__ = ["case", "grade", "llm", "model", "ultrapar_repeat"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's options."""
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the plugin's hooks."""
    pluginmanager.add_hookspecs(hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting asserts in those modules of this package that are not loaded yet.

    Called when pytest has read the command line.
    """
    own_imports.import_without_rewrite(early_config)
    given, pool = vars(early_config.known_args_namespace), Options.pool
    if given.get(pool.dest) or given.get(Options.models.dest) or early_config.getini(pool.ini):
        # Import these modules before any conftest, because a conftest may freeze the clock, and
        # they need the type of the real clock.
        from pytest_ultrapar.coordinator.keys import key_lock_file  # noqa: F401, PLC0415
        from pytest_ultrapar.store import manifest  # noqa: F401, PLC0415
        from pytest_ultrapar.system import clock  # noqa: F401, PLC0415


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse `-f` here, because xdist runs its loop in this hook, before plugins are configured."""
    if not options.is_active(config):
        return
    if config.getoption("looponfail", default=False):
        raise pytest.UsageError(
            "-f (--looponfail) cannot be used together with --ultrapar-pool: it would send the "
            "requests of failed cases again after every change to a file"
        )
    from pytest_ultrapar.session import garbage_collection  # noqa: PLC0415 - needed with a pool only

    garbage_collection.unfreeze_at_end(config)


@pytest.hookimpl(specname="pytest_cmdline_main")
def pytest_ultrapar_plan_alone(config: pytest.Config) -> None:
    """Start no workers for a plan.

    When this hook is called, xdist has already read `-n`, because xdist's own hook is marked
    `tryfirst` (as of version 3.8.0).
    """
    if not options.plans(config):
        return
    if not options.is_active(config):
        raise pytest.UsageError(f"--ultrapar-plan needs {NEEDED}")
    if _has_workers(config):
        from pytest_ultrapar.session import required_internals, xdist_options  # noqa: PLC0415 - needed with workers only

        required_internals.look_up(workers=True)
        with usage_errors():
            xdist_options.refuse(config)
        config.stash[_planned_workers_key] = compatibility.n_workers(config)
        config.option.dist, config.option.tx = "no", []


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that this process needs. Without a pool, it needs only a few."""
    config.addinivalue_line(
        "markers",
        "ultrapar(models=..., summary=..., taken_from=..., repeats_over=..., cluster=..., "
        "expect=..., meta=...): settings of a test. `models`: patterns for the models on which the "
        "test runs. `summary`: the columns by which its summary is grouped. `taken_from`: another "
        "suite, whose answers are used for the cases that it also contains. `repeats_over`: the "
        "parameter of which --ultrapar-repeats NxM runs only the first M values. `cluster`: "
        "parameters; cases of one repetition with equal values for these are statistically "
        "dependent. `expect`: the turns and tokens per episode that --ultrapar-plan assumes if "
        "there is no earlier run. `meta`: metadata for the columns meta.*",
    )
    config.pluginmanager.register(AsyncTests(), "ultrapar-async-tests")
    given = getattr(config, "workerinput", {}).get(INPUT)
    if not options.is_active(config):
        _without_pool(config, given)
    elif given is not None:
        from pytest_ultrapar.session import garbage_collection  # noqa: PLC0415
        from pytest_ultrapar.session.secret_masking import SecretMasking  # noqa: PLC0415 - needed with a pool only
        from pytest_ultrapar.session.worker import WorkerSession  # noqa: PLC0415 - heavy

        garbage_collection.collect_rarely(config)
        config.pluginmanager.register(SecretMasking(config), "ultrapar-secrecy")
        config.pluginmanager.register(WorkerSession(config, given), "ultrapar-worker")
        _cut(config)
    else:
        with usage_errors():
            _coordinate(config)


def _without_pool(config: pytest.Config, given: dict[str, Any] | None) -> None:
    from pytest_ultrapar.session import no_pool  # noqa: PLC0415 - needed without a pool only

    if given is None:
        config.pluginmanager.register(no_pool.NoPoolReporting(), "ultrapar-poolless-reporting")
    controls = given is None and _has_workers(config)
    plugin = no_pool.NoPoolController() if controls else no_pool.NoPoolCollecting(given)
    config.pluginmanager.register(plugin, "ultrapar-poolless")


def _coordinate(config: pytest.Config) -> None:
    """Check all input before anything starts. Then register the plugins for a run, plan or listing.

    A listing shows tests or fixtures and runs nothing, as with `--collect-only`.
    """
    from pytest_ultrapar.session import garbage_collection  # noqa: PLC0415 - needed with a pool only

    # Do this before the imports below: they create enough objects for many garbage collections.
    garbage_collection.collect_rarely(config)
    from pytest_ultrapar.session import required_internals  # noqa: PLC0415

    required_internals.look_up(workers=_has_workers(config))
    from pytest_ultrapar.session import run_config, selection  # noqa: PLC0415
    from pytest_ultrapar.session.secret_masking import SecretMasking  # noqa: PLC0415

    _refuse(config)
    settled, pool = run_config.settings(config)
    _cut(config)
    config.pluginmanager.register(SecretMasking(config), "ultrapar-secrecy")
    if settled.cluster_run or settled.cluster or settled.cluster_host:
        from pytest_ultrapar.coordinator.cluster_run import refuse_options  # noqa: PLC0415 - rare

        refuse_options(settled)
    run_config.models(config)
    run_config.fix_source(config)
    if settled.reuse is not None:
        from pytest_ultrapar.coordinator.earlier_run import reusable  # noqa: PLC0415

        data = run_config.data(config)
        config.stash[selection.reused_key] = reusable(
            settled.reuse, seed=settled.seed, data=data, pool=pool
        )
    if settled.only is not None:
        from pytest_ultrapar.coordinator.earlier_run import again  # noqa: PLC0415 - as above

        config.stash[selection.again_key] = again(settled)
    n_planned = config.stash.get(_planned_workers_key, 0)
    n_workers = n_planned or _n_workers(config)
    settled.debug_log.check(n_workers, settled.origin["debug_log"])
    gate = None
    if settled.gate or settled.gate_baseline is not None:
        from pytest_ultrapar.coordinator.run_gate import prepare_gate  # noqa: PLC0415

        gate = prepare_gate(settled, run_config.source(config))
    if settled.plan:
        from pytest_ultrapar.coordinator.planning import Planning  # noqa: PLC0415

        config.pluginmanager.register(Planning(config, n_planned, gate), "ultrapar-planning")
    elif options.only_looks(config):
        from pytest_ultrapar.coordinator.header import CollectOnlyHeader  # noqa: PLC0415

        config.pluginmanager.register(CollectOnlyHeader(config), "ultrapar-collect-only")
    else:
        _run(config, n_workers, gate)


def _cut(config: pytest.Config) -> None:
    """If the run is a shard, register a plugin that keeps only the shard's tests."""
    from pytest_ultrapar.session import run_config  # noqa: PLC0415 - needed with a pool only

    shard = run_config.settings(config)[0].shard
    if shard is not None:
        from pytest_ultrapar.session.sharding import ShardCut  # noqa: PLC0415 - few runs are shards

        config.pluginmanager.register(ShardCut(config, shard), "ultrapar-shard")


def _run(config: pytest.Config, n_workers: int, gate: RunGate | None) -> None:
    from pytest_ultrapar.coordinator.coordinator import Coordinator  # noqa: PLC0415
    from pytest_ultrapar.engine.file_descriptors import check_descriptors  # noqa: PLC0415

    check_descriptors(n_workers)
    coordinator = Coordinator(config, gate)
    config.pluginmanager.register(coordinator, "ultrapar-coordinator")
    if _has_workers(config):
        from pytest_ultrapar.coordinator.worker_watch import WorkerWatch  # noqa: PLC0415
        from pytest_ultrapar.coordinator.xdist_session import ControllerSession  # noqa: PLC0415

        config.pluginmanager.register(ControllerSession(coordinator), "ultrapar-controller")
        config.pluginmanager.register(WorkerWatch(coordinator), "ultrapar-watch")
    else:
        from pytest_ultrapar.coordinator.local_session import LocalSession  # noqa: PLC0415

        local = LocalSession(coordinator)
        coordinator.status_source = local.status
        config.pluginmanager.register(local, "ultrapar-local")


def _refuse(config: pytest.Config) -> None:
    if config.getoption("setuponly", False) and not config.getoption("setupplan", False):
        raise pytest.UsageError(
            "--setup-only cannot be used together with --ultrapar-pool: it would send all requests "
            "but run no tests; --setup-plan shows the same and sends nothing"
        )
    from pytest_ultrapar.session import other_processes  # noqa: PLC0415

    other_processes.refuse(config)
    if config.pluginmanager.hasplugin("xdist"):
        from pytest_ultrapar.session import xdist_options  # noqa: PLC0415

        xdist_options.refuse(config)


def _n_workers(config: pytest.Config) -> int:
    return compatibility.n_workers(config) if _has_workers(config) else 1


def _has_workers(config: pytest.Config) -> bool:
    # xdist creates its `DSession` under the same condition (`xdist.plugin._is_distribution_mode`).
    dist, tx = config.getoption("dist", "no"), config.getoption("tx", None)
    return bool(dist != "no" and tx) and config.pluginmanager.hasplugin("xdist")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return few workers for `-n auto`, because seats, not workers, limit the requests.

    Called before pytest_configure.
    """
    if not options.is_active(config):
        return None
    from pytest_ultrapar.session.xdist_options import suggested_workers  # noqa: PLC0415

    with usage_errors():
        return suggested_workers(config, os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Parametrize cases over the selected models (outer loop) and repetitions (inner loop)."""
    if not options.is_active(metafunc.config):
        return (yield)
    from pytest_ultrapar.session import selection  # noqa: PLC0415 - heavy, needed with a pool only

    with usage_errors():
        is_case = selection.parametrize_models(metafunc)
        yield
        if is_case:
            selection.parametrize_repeats(metafunc)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Deselect cases that options exclude, and cases that take their answers from other suites.

    This is done after all other plugins have modified the items.
    """
    if not options.is_active(config):
        return (yield)
    from pytest_ultrapar.session import selection  # noqa: PLC0415

    with usage_errors():
        first = selection.first_values(config, items)
        yield
        selection.deselect(config, items, first)
        selection.draw_sample(config, items)
        selection.deselect_shared(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_ultrapar_policies(mode: str) -> Sequence[str]:
    """Return the names of the shipped policies, so that they are listed before all others."""
    from pytest_ultrapar.coordinator import policies  # noqa: PLC0415 - needed with a pool only

    return policies.shipped(mode)


@pytest.hookimpl(trylast=True)
def pytest_ultrapar_assign(  # noqa: PLR0917 - pluggy passes them by name
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    pool: Pool,
    policy: str,
    mode: str,
) -> Assignment:
    """Apply a shipped policy, if no other implementation has returned an assignment."""
    from pytest_ultrapar.coordinator.policies import find_policy  # noqa: PLC0415

    return find_policy(policy, mode)(pool, workers, lanes, cases)
