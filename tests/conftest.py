"""What holds for all tests: nothing is timed, and every interaction counts as the first."""

from __future__ import annotations

import pytest
from hypothesis import settings

from vicinal.mechanisms import interactions

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def interactions_alone(request):
    """Let tests fit the same generated records as often as they like; see the marker.

    Tests marked `counts_interactions` start from an empty registry that refuses as the product's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactions.REGISTRY, "_entries", [])
        if request.node.get_closest_marker("counts_interactions") is None:
            patch.setattr(interactions.Interactions, "_fault", lambda *_: "")
        yield
