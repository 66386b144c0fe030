"""Replies of the ledger's script, which are checked because others may write to its keys."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.cluster.ledger import Answer, RowShare
from pytest_ultrapar.cluster.ledger_script import answer_of
from pytest_ultrapar.errors import ConfigError

HEAD = (7, False, 12, 13, 14, 2, 5)


def reply(head, shares=(), news=()):
    return [msgspec.msgpack.encode(part) for part in (head, shares, news)]


def test_answer_has_a_head_and_shares_of_six_numbers():
    said = answer_of(reply(HEAD, [3, 4, 5, 6, 7, 1]))
    names = ("epoch", "stale", "now_ms", "server_ms", "epoch_age_ms", "peers", "news_seen")
    shares = (RowShare(3, 4, 5, 6, 7, closed=True),)
    assert said == Answer(**dict(zip(names, HEAD, strict=True)), shares=shares)


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(reply(HEAD[:-1]), id="six"),
        pytest.param(reply((*HEAD, [])), id="eight"),
        pytest.param(reply((*HEAD, [], [], 1)), id="ten"),
        pytest.param(reply(HEAD, [1, 2]), id="part of a share"),
        pytest.param(reply(HEAD)[:2], id="no news"),
        pytest.param(b"OK", id="a word"),
    ],
)
def test_answer_with_other_fields_is_refused_as_another_version(strange):
    with pytest.raises(ConfigError, match="not from this version of pytest-ultrapar"):
        answer_of(strange)
