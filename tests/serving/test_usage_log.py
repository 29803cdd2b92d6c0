"""The samples behind the console's plot: bounded, and without repetitions."""

from vicinal.serving._state import MOST, UsageLog


def test_equal_samples_are_kept_with_their_begin_and_end():
    log = UsageLog()
    for at, used in enumerate((0, 5, 5, 5, 5, 7)):
        log.note("a", used, None, at=float(at))
    assert [(s["at"], s["used"]) for s in log.of("a")] == [(0, 0), (1, 5), (4, 5), (5, 7)]
    assert log.of("b") == []


def test_a_long_life_keeps_its_first_and_its_last_sample():
    log = UsageLog()
    for at in range(10 * MOST):
        log.note("a", at, at / 1e4, at=float(at))
    kept = [sample["at"] for sample in log.of("a")]
    assert len(kept) <= MOST
    assert (kept[0], kept[-1]) == (0.0, 10 * MOST - 1.0)
    assert kept == sorted(set(kept))
