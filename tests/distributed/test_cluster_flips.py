"""Damage is told, never served: single bits of every file of a cluster and its witnesses."""

from benchmarks import flips

FLIPS = 60


def test_no_bit_that_flips_in_a_cluster_is_silent_or_ends_in_a_traceback(tmp_path):
    said: list[str] = []
    counts = flips.flips(tmp_path, FLIPS, ["cluster"], report=said.append)
    assert not said
    assert sum(counts.values()) == FLIPS
    assert sum(n for (_, found), n in counts.items() if found == "noticed") > FLIPS / 2
