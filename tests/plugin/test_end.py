"""The end of a run: what is still done after the last report, and what is not."""

from __future__ import annotations


def test_pytests_last_look_for_garbage_spares_the_items(project):
    project.pytester.makeconftest(
        "import gc\n"
        "from _pytest import unraisableexception\n"
        "look = unraisableexception.gc_collect_harder\n"
        "def seen(iterations):\n"
        "    print('frozen' if gc.get_freeze_count() > 10_000 else 'thawed')\n"
        "    look(iterations)\n"
        "unraisableexception.gc_collect_harder = seen\n"
    )
    project.suite("@pytest.mark.parametrize('prompt', ['a'])\ndef test_a(answer): pass\n")
    result = project.run_apart("-s")
    assert result.ret == 0
    assert result.outlines[-1] == "frozen"
