"""`pytest --cpu N`: the N tests that took most processor time, and the sum of every folder.

Seconds of this process and of all children that it has waited for, fixtures included: unlike
``--durations`` they hardly change when the machine is busy with other work.
"""

from __future__ import annotations

import resource
from collections import Counter

import pytest

_PROPERTY = "processor seconds"


def pytest_addoption(parser):
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="show N slowest by CPU time")


def used() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.config.stash[_STARTED] = used()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    stash, now = item.config.stash, used()
    report.user_properties.append((_PROPERTY, now - stash[_STARTED]))
    stash[_STARTED] = now
    return report


def pytest_terminal_summary(terminalreporter, config):
    if shown := config.getoption("--cpu"):
        tests, folders = seconds(terminalreporter.stats)
        terminalreporter.section("processor seconds")
        for found in (folders.most_common(), tests.most_common(shown or None)):
            for name, spent in found:
                terminalreporter.write_line(f"{spent:8.2f}  {name}")


def seconds(stats) -> tuple[Counter, Counter]:
    """Return processor seconds by test and by folder."""
    tests, folders = Counter(), Counter()
    for report in (report for reports in stats.values() for report in reports):
        for name, spent in getattr(report, "user_properties", ()):
            if name == _PROPERTY:
                tests[report.nodeid] += spent
                folders[report.nodeid.split("::")[0].rpartition("/")[0]] += spent
    return tests, folders


_STARTED = pytest.StashKey[float]()
