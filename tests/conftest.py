"""What all tests share. One thread and no model hub: set before NumPy or a hub client is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ANONYMIZED_TELEMETRY"] = "False"

from datetime import datetime, timedelta, timezone

import pytest

from langchain_hermes_memory.embeddings import OfflineEmbeddings
from langchain_hermes_memory.testing import FrozenClock


def pytest_collection_modifyitems(items):
    """Skip what needs the network unless it is asked for."""
    if os.environ.get("HERMES_TEST_NETWORK") != "1":
        for item in items:
            if item.get_closest_marker("network"):
                item.add_marker(pytest.mark.skip(reason="needs the network; HERMES_TEST_NETWORK=1 runs it"))


@pytest.fixture(scope="session")
def offline_embeddings():
    """The multilingual model that works offline, loaded once."""
    return OfflineEmbeddings()


@pytest.fixture
def clock():
    """A clock that stands at Wednesday, 11 March 2026, 10:00 in Shanghai."""
    return FrozenClock(datetime(2026, 3, 11, 10, 0, tzinfo=timezone(timedelta(hours=8))))
