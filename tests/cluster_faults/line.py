"""A slow and lossy line between two network cards of the kernel, frame by frame.

It is for kernels without netem. Both cards are taps made here, in the namespace of this process;
the parent moves one of them into another namespace. The program prints "ready" and runs until it is
killed: `python -SsE line.py NEAR FAR DELAY_S LOSS SEED`.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import struct
import sys
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MOST = 65536


def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class Way:
    """One direction: each frame arrives later and in order, or is lost."""

    def __init__(self, loop, source, target, delay_s, lost):
        self._loop, self._source, self._target = loop, source, target
        self._delay_s, self._lost = delay_s, lost
        self._frames = deque()
        loop.add_reader(source, self._come)

    def _come(self):
        with contextlib.suppress(OSError):  # a card that is down, or has no more frames
            while True:
                frame = os.read(self._source, MOST)
                if not self._lost():
                    self._frames.append(frame)
                    self._loop.call_later(self._delay_s, self._go)

    def _go(self):
        with contextlib.suppress(OSError):
            os.write(self._target, self._frames.popleft())


async def main(near, far, delay_s, loss, seed):
    chance = random.Random(seed)
    cards = tap(near), tap(far)

    def lost():
        return chance.random() < loss

    loop = asyncio.get_running_loop()
    ways = [Way(loop, one, other, delay_s, lost) for one, other in (cards, cards[::-1])]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()
    del ways


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
