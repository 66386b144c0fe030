"""Differences between releases of Python, pytest and xdist."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# From Python 3.14 on, annotations are evaluated late, and names that only type checkers see are
# missing.
if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    signature_of = partial(inspect.signature, annotation_format=Format.FORWARDREF)
    annotations_of = partial(get_annotations, format=Format.FORWARDREF)
else:
    signature_of, annotations_of = inspect.signature, inspect.get_annotations


def n_workers(config: pytest.Config) -> int:
    """The number of workers that xdist starts. Called in xdist's controller."""
    from xdist import workermanage  # noqa: PLC0415 - this module is also read without xdist

    # Before xdist 3.7, the function was called `parse_spec_config`.
    parse = getattr(workermanage, "parse_tx_spec_config", None) or workermanage.parse_spec_config
    return len(parse(config))


def is_of_subtest(report: pytest.TestReport) -> bool:
    """Whether a report belongs to a subtest of pytest itself (since 9.0) or of pytest-subtests."""
    return type(report).__name__.lower() == "subtestreport"
