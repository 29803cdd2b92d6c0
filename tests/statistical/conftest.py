"""Settings of the statistical tests."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Multiply on one thread: products here are so small that two would wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield
