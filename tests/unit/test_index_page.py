"""What a package index shows, and the picture in it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_ultrapar.analysis.compaction import compact
from tests.unit.finished_run import case, episode, grade, make_run, write_journal

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


index_page = loaded(ROOT / "hatch_build.py")
picture = loaded(ROOT / "docs" / "picture.py")
sys.path.insert(0, str(ROOT / "docs"))
pictures = loaded(ROOT / "docs" / "pictures.py")
sys.path.remove(str(ROOT / "docs"))


def test_every_link_is_absolute_and_names_a_file():
    text = index_page.for_index(README, "https://example.org/team/it")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) >= 20
    for link in links:
        found = re.fullmatch(r"https://example\.org/team/it/(?:blob|raw)/HEAD/(.+)", link)
        assert found, link
        assert (ROOT / found[1]).is_file()
    assert "](https://example.org/team/it/raw/HEAD/docs/run.svg)" in text


def test_without_an_address_files_are_named_and_nothing_is_linked():
    text = index_page.for_index(README, None)
    assert "](" not in text
    assert "tutorial (`docs/tutorial.md`)" in text
    assert index_page.urls(None) == {}


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://example.org/team/it.git", "https://example.org/team/it"),
        ("https://user:canary@example.org/team/it", "https://example.org/team/it"),
        ("git@example.org:team/it.git", "https://example.org/team/it"),
        ("ssh://git@example.org/team/it.git", "https://example.org/team/it"),
        ("/srv/it", None),
        (None, None),
    ],
)
def test_address_is_that_of_origin(tmp_path, origin, address):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert index_page.address_of(tmp_path) == address


def test_picture_has_a_bar_for_each_request(tmp_path):
    run = make_run(tmp_path / "run", [case(number) for number in range(3)])
    for number in range(3):
        write_journal(
            run, f"gw{number}", episode(number, 1.0 + number, 2.5 + number), grade(number, "solved")
        )
    compact(run.path)
    drawn = ET.fromstring(picture.svg(run.path))
    paths = [one.get("d") for one in drawn.iter("{http://www.w3.org/2000/svg}path")]
    assert sum(path.count("M") for path in paths) == 3
    assert "SIMULATED" in "".join(drawn.itertext())


def test_requests_share_a_seat_where_one_ends_before_the_next():
    placed = picture.seats([(0.0, 2.0, "a"), (1.0, 3.0, "b"), (2.0, 4.0, "c")])
    assert [(seat, model) for seat, _, _, model in placed] == [(0, "a"), (1, "b"), (0, "c")]


def test_picture_of_the_readme_is_one_of_a_whole_run():
    drawn = ET.fromstring((ROOT / "docs" / "run.svg").read_text(encoding="utf-8"))
    (title,) = drawn.iter("{http://www.w3.org/2000/svg}title")
    n_requests = int(re.search(r"(\d+) requests", title.text)[1])
    paths = [one.get("d") for one in drawn.iter("{http://www.w3.org/2000/svg}path")]
    assert sum(path.count("M") for path in paths) == n_requests


def test_film_of_a_terminal_has_each_frame_and_ends_with_the_last(tmp_path):
    said = r"printf '\033[1;32m a\033[0m <b>\n'; sleep 0.3; printf 'last\n'"
    seen = pictures.frames(["sh", "-c", said], tmp_path)
    assert seen[-1][1][0] == ((" a", "green", True), (" <b>" + 94 * " ", "default", False))
    drawn = ET.fromstring(pictures.film(seen))
    frames = [one for one in drawn if one.get("id")]
    assert [one.get("visibility") for one in frames] == ["hidden"] * (len(frames) - 1) + [None]
    shown = [(one.text, one.get("fill")) for one in frames[-1]]
    assert shown == [
        ("a", pictures.COLOURS["green"]),
        ("<b>", pictures.COLOURS["default"]),
        ("last", pictures.COLOURS["default"]),
    ]
