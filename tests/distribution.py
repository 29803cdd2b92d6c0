"""Which worker runs which file, and when: a file goes to one worker whole, the longest first.

What the tests of a file share is made once and drawn from in one order. A long file that began last
would leave the other core idle.
"""

from __future__ import annotations

import pytest

ON_RAY = (
    "tests/crash/test_cluster_kill.py",
    "tests/congruence/test_shards.py",
    "tests/unit/test_distributed_changes.py",
    "tests/unit/test_distributed_actors.py",
    "tests/unit/test_distributed_extraction.py",
    "tests/api/test_shards_cli.py",
)
"""Files that share an engine (ray_engine.py), and so a worker."""

LONGEST = (
    *ON_RAY,
    "tests/crash/test_store_kill.py",
    "tests/crash/test_transfer_kill.py",
    "tests/crash/test_copies_kill.py",
    "tests/crash/test_staged_kill.py",
    "tests/crash/test_takeover_kill.py",
    "tests/unit/test_students.py",
    "tests/statistical/test_audits.py",
    "tests/unit/test_audit.py",
    "tests/statistical/test_noise.py",
    "tests/statistical/test_private_knn_leak.py",
    "tests/statistical/test_labels_leak.py",
    "tests/docs/test_docstrings.py",
    "tests/unit/test_takeover.py",
    "tests/unit/test_label_only.py",
    "tests/unit/test_methods.py",
    "tests/unit/test_start_up.py",
    "tests/unit/test_simulation.py",
    "tests/unit/test_reproductions.py",
    "tests/unit/test_plan.py",
    "tests/unit/test_private_knn.py",
    "tests/unit/test_minilm.py",
    "tests/statistical/test_two_worlds.py",
    "tests/statistical/test_sampling.py",
    "tests/unit/test_shard_copies.py",
    "tests/docs/test_references.py",
    "tests/unit/test_suite.py",
    "tests/unit/test_labelling_cli.py",
    "tests/unit/smoothed/test_two_types.py",
    "tests/docs/test_tables_page.py",
    "tests/congruence/test_engines.py",
    "tests/unit/test_store_failures.py",
    "tests/unit/test_soft_labels.py",
    "tests/unit/test_compiled.py",
    "tests/unit/test_house.py",
    "tests/crash/test_service_kill.py",
    "tests/serving/test_docs.py",
    "tests/unit/test_serving_load.py",
    "tests/unit/test_refusals.py",
    "tests/api/test_cli.py",
    "tests/unit/test_subsampled.py",
    "tests/unit/test_labelling_choice.py",
    "tests/unit/test_two_blocks.py",
    "tests/unit/test_sum_tree.py",
    "tests/unit/test_labelling.py",
    "tests/statistical/test_noisy_sgd_leak.py",
    "tests/serving/test_schemathesis.py",
    "tests/serving/test_console.py",
    "tests/unit/smoothed/test_commands.py",
    "tests/statistical/test_vectors_leak.py",
    "tests/unit/test_serving_raw.py",
    "tests/unit/test_life.py",
    "tests/unit/test_pate_classifier.py",
    "tests/unit/test_store_reuse.py",
    "tests/congruence/test_indexes.py",
    "tests/unit/test_search_benchmark.py",
    "tests/unit/test_efficiency.py",
    "tests/statistical/test_pate_leak.py",
    "tests/unit/test_screening.py",
    "tests/docs/test_readme.py",
    "tests/unit/test_reports.py",
    "tests/unit/test_proxy_ledger.py",
    "tests/unit/test_plan_model.py",
    "tests/statistical/test_company_leak.py",
    "tests/statistical/test_sampler.py",
    "tests/unit/test_serving_floods.py",
    "tests/unit/noise/test_cks20.py",
    "tests/unit/smoothed/test_brute_force.py",
    "tests/unit/test_algorithm3.py",
)
"""Files by their length, the longest first; all others are short, and follow by name."""


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(items):
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(file_of(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FilesInOrder(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = file_of(nodeid)
            return "on Ray" if file in ON_RAY else file

    return FilesInOrder(config, log)
