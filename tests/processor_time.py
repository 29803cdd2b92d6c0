"""`pytest --cpu N`: the N tests and files that took most processor time, and every folder's sum.

Seconds of this process and of all children that it has waited for, fixtures included: unlike
``--durations`` they hardly change when the machine is busy with other work.
"""

from __future__ import annotations

import resource
from collections import Counter

import pytest

PROPERTY = "processor seconds"


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
    report.user_properties.append((PROPERTY, now - stash[_STARTED]))
    stash[_STARTED] = now
    return report


def pytest_terminal_summary(terminalreporter, config):
    if shown := config.getoption("--cpu"):
        tests = seconds(terminalreporter.stats)
        files = summed(tests, lambda name: name.split("::")[0])
        folders = summed(files, lambda name: name.rpartition("/")[0])
        terminalreporter.section(f"processor seconds: {tests.total():.0f}")
        for found in (folders.most_common(), files.most_common(shown), tests.most_common(shown)):
            for name, spent in found:
                terminalreporter.write_line(f"{spent:8.2f}  {name}")


def seconds(stats) -> Counter:
    """Return the processor seconds of every test."""
    tests = Counter()
    for report in (report for reports in stats.values() for report in reports):
        for name, spent in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                tests[report.nodeid] += spent
    return tests


def summed(spent: Counter, group) -> Counter:
    """Return the sums of groups of names."""
    sums = Counter()
    for name, found in spent.items():
        sums[group(name)] += found
    return sums


_STARTED = pytest.StashKey[float]()
