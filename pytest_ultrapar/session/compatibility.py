"""What differs between releases of Python, pytest and xdist, said once."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations
else:
    from inspect import get_annotations


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """A function's signature; names that its annotations have for type checkers alone may miss."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """A function's annotations, those that cannot be resolved as references to their names."""
    if sys.version_info >= (3, 14):
        return get_annotations(function, format=Format.FORWARDREF)
    return get_annotations(function)


def n_workers(config: pytest.Config) -> int:
    """How many workers xdist is going to start; called in its controller."""
    from xdist import workermanage  # noqa: PLC0415 - this module is read without xdist, too

    # Before 3.7 it had the second name.
    parse = getattr(workermanage, "parse_tx_spec_config", None) or workermanage.parse_spec_config
    return len(parse(config))


def is_of_subtest(report: pytest.TestReport) -> bool:
    """Whether a report is a subtest's: pytest's own since 9.0, or that of pytest-subtests."""
    return type(report).__name__.lower() == "subtestreport"
