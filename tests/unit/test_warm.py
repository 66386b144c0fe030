"""A child that is forked from the tests keeps what it opens, whatever its parent left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tests import warm

pytestmark = pytest.mark.slow

CHILD = """
import gc, os, sys

wanted = int(sys.argv[1])
opened = [os.open(os.devnull, os.O_RDONLY)]
while opened[-1] < wanted:
    opened.append(os.open(os.devnull, os.O_RDONLY))
gc.collect()
os.fstat(wanted)
print("kept")
"""


class Cycle:
    def __init__(self):
        self.itself = self
        self.number = os.open(os.devnull, os.O_RDONLY)

    def __del__(self):
        os.close(self.number)


def test_garbage_of_the_parent_closes_no_descriptor_of_the_child(tmp_path, monkeypatch):
    tmp_path.joinpath("warm_child.py").write_text(CHILD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(warm, "_WARM", {"warm_child"})
    gc.disable()
    try:
        number = Cycle().number
        child = warm.Warm(
            [sys.executable, "-P", "-m", "warm_child", str(number)], stdout=subprocess.PIPE
        )
    finally:
        gc.enable()
    assert child.communicate() == (b"kept\n", None)
    assert child.returncode == 0
