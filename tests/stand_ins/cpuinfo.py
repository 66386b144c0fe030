"""Stands for py-cpuinfo in xdist's workers and in the processes that tests start.

pytest-benchmark asks it what the processor is, and it asks four other programs: 0.1 s of CPU in
each of some twelve hundred runs, and no test reads the answer.
"""

from __future__ import annotations


def get_cpu_info() -> dict[str, str]:
    """As the real one has it, of a processor that is nowhere looked at."""
    return {"arch": "not asked in tests", "brand_raw": "not asked in tests"}
