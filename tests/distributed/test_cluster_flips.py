"""Damage of single bits in any file of a cluster or its witnesses is reported, never served."""

from benchmarks import flips

FLIPS = 60


def test_no_bit_that_flips_in_a_cluster_is_silent_or_ends_in_a_traceback(tmp_path):
    reports: list[str] = []
    counts = flips.flips(tmp_path, FLIPS, ["cluster"], report=reports.append)
    assert not reports
    assert sum(counts.values()) == FLIPS
    assert sum(n for (_, found), n in counts.items() if found == "noticed") > FLIPS / 2
