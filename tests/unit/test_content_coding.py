"""Compressed bodies are unpacked whole, or refused, and never by more than a step at once."""

import gzip
import zlib

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.engine.transport import Unpacker

STEP = 64 * 1024


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": (" X-GZIP ", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", raw_deflate),
}


def unpack(coding: str, *pieces: bytes) -> bytes:
    unpacker = Unpacker(coding)
    steps = [step for piece in pieces for step in unpacker.steps(piece)]
    assert all(0 < len(step) <= STEP for step in steps)
    unpacker.end()
    return b"".join(steps)


@pytest.mark.parametrize("name", PACKERS)
@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_body_is_unpacked_however_it_is_cut(name, data, cut):
    coding, pack = PACKERS[name]
    packed = pack(data)
    assert unpack(coding, packed[:cut], packed[cut:]) == data


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("n_bytes", [STEP - 1, STEP, STEP + 1, 2 * STEP, 1_000_003])
def test_large_body_comes_in_small_steps(name, n_bytes):
    coding, pack = PACKERS[name]
    assert unpack(coding, pack(b"x" * n_bytes)) == b"x" * n_bytes


@pytest.mark.parametrize("name", PACKERS)
def test_body_that_is_cut_off_or_broken_is_refused(name):
    coding, pack = PACKERS[name]
    packed = pack(bytes(range(256)) * 10)
    for broken in (packed[:-1], b"", b"no such thing", packed[:20] + b"\xff" * 20):
        with pytest.raises(httpx.DecodingError):
            unpack(coding, broken)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", ""])
def test_coding_that_was_not_asked_for_is_refused(coding):
    with pytest.raises(httpx.DecodingError, match="was not requested"):
        Unpacker(coding)


@given(members=st.lists(st.binary(max_size=100), min_size=1, max_size=4), cut=st.integers(0, 300))
def test_members_of_gzip_are_one_body_however_it_is_cut(members, cut):
    packed = b"".join(map(gzip.compress, members))
    assert unpack("gzip", packed[:cut], packed[cut:]) == b"".join(members)


def test_member_that_is_cut_off_is_refused():
    with pytest.raises(httpx.DecodingError, match="before its end"):
        unpack("gzip", gzip.compress(b"one") + gzip.compress(b"two")[:-1])


@pytest.mark.parametrize("rest", [b"\0", b"\0" * 512, b"junk"])
@pytest.mark.parametrize("name", PACKERS)
def test_what_follows_the_end_is_left_out(name, rest):
    coding, pack = PACKERS[name]
    assert unpack(coding, pack(b"text"), rest, rest) == b"text"
    assert unpack(coding, pack(b"text") + rest) == b"text"
