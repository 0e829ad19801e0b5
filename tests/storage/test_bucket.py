"""What is read from a bucket is what was written there, whole or not at all."""

import dataclasses
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from etils import epath
from google_storage import BUCKET, Storage, google_storage

from data_pipelines.own_records import find_files
from gophercite import records
from gophercite.browser.recorded import RecordedWorld
from gophercite.documents import Document
from gophercite.model_folders.description import read_description
from gophercite.model_folders.folder import Model, ModelFolderError, load_model, save_model
from gophercite.model_folders.host_parameters import HostParameters
from gophercite.model_folders.tensors import TensorFileError
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.storage import StorageError, local_copy, whole_folder, write_whole
from gophercite.storage.json_lines import read_json_lines
from gophercite.storage.paths import upload
from gophercite.vocabularies import VocabularyError, load_vocabulary, train_sentencepiece
from tests.drawn_parameters import drawn_parameters

CONFIG = TransformerConfig(
    vocab_size=384, d_model=16, num_layers=3, num_heads=2, head_dim=8, d_ff=32, position="rope"
)
PAGES = [Document(n, f"Page {n}", f"The town of Aldgate {n} lies on the Orm.") for n in "12"]


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with google_storage() as found:
        yield found


@pytest.fixture(scope="module")
def model() -> Model:
    texts = [f"The town of Aldgate number {i} lies on the river Orm." for i in range(200)]
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    return Model(transformer, params, train_sentencepiece(texts, 384), {"source": "a test"})


def assert_same(found: Model, wanted: Model) -> None:
    jax.tree.map(np.testing.assert_array_equal, found.params, wanted.params)
    text = "The town of Aldgate."
    assert found.vocabulary.encode(text) == wanted.vocabulary.encode(text)


def test_a_model_is_read_as_it_was_written_and_replaced_whole(
    storage: Storage, model: Model
) -> None:
    folder = f"{BUCKET}/models/tiny"
    storage.write("models/tiny/parameters-00002-of-00002.safetensors", b"of an older version")
    with pytest.raises(ModelFolderError, match="holds other files"):
        save_model(folder, model)
    storage.delete("models/tiny/parameters-00002-of-00002.safetensors")
    save_model(folder, model)
    assert_same(load_model(folder), model)

    split = load_model(folder, frozen_layers=2).params
    whole = model.params["trained_layers"]
    for part, layers in (("frozen_layers", slice(2)), ("trained_layers", slice(2, 3))):
        cut = jax.tree.map(lambda leaf, at=layers: leaf[at], whole)
        jax.tree.map(np.testing.assert_array_equal, split[part], cut)
    part = HostParameters(folder, read_description(folder)).part("embed/embedding", (slice(3, 9),))
    np.testing.assert_array_equal(part, model.params["embed"]["embedding"][3:9])

    # Replaced: what the older one had besides is gone, and in between nothing is taken for whole.
    storage.write("models/tiny/vocabulary/old.json", b"{}")
    other = dataclasses.replace(model, params=jax.tree.map(lambda leaf: 2 * leaf, model.params))
    save_model(folder, other)
    assert_same(load_model(folder), other)
    assert "models/tiny/vocabulary/old.json" not in storage.names()


def test_what_was_cut_off_while_it_was_written_is_no_model(
    storage: Storage, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{BUCKET}/models/cut"
    save_model(folder, model)

    def uploaded(local: pathlib.Path, path: epath.Path) -> None:
        if "vocabulary" in str(path):
            raise KeyboardInterrupt
        upload(local, path)

    with monkeypatch.context() as patch:
        patch.setattr("gophercite.storage.whole_folders.upload", uploaded)
        with pytest.raises(KeyboardInterrupt):
            save_model(folder, model)
    with pytest.raises(ModelFolderError, match=f"{folder}: not a model folder"):
        load_model(folder)


def test_damage_is_named_by_its_address(storage: Storage, model: Model) -> None:
    save_model(f"{BUCKET}/damaged", model)
    name = "damaged/parameters.safetensors"
    good = storage.read(name)
    for bad, said in (
        (good[:-1] + bytes([good[-1] ^ 1]), "is damaged: its bytes hash to"),
        (good[:-3], "cut short or damaged"),
        (good[:5], "cut short or damaged"),
    ):
        storage.write(name, bad)
        with pytest.raises(TensorFileError, match=rf"^gs://bucket/{name}: .*{said}"):
            load_model(f"{BUCKET}/damaged")
    storage.delete(name)
    with pytest.raises(TensorFileError, match=rf"^gs://bucket/{name}: the file is missing"):
        load_model(f"{BUCKET}/damaged")

    pieces = next(n for n in storage.names() if n.startswith("damaged/voc") and ".model" in n)
    bits = bytearray(storage.read(pieces))
    bits[len(bits) // 2] ^= 4
    storage.write(pieces, bytes(bits))
    with pytest.raises(VocabularyError, match=rf"^gs://bucket/{pieces}"):
        load_vocabulary(f"{BUCKET}/damaged/vocabulary")
    with pytest.raises(FileNotFoundError, match=f"^{BUCKET}/nowhere: "):
        load_vocabulary(f"{BUCKET}/nowhere")


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.jsonl.gz"])
def test_records_appear_when_they_are_complete(
    storage: Storage, tmp_path: pathlib.Path, name: str
) -> None:
    def ends_early() -> Iterator[Document]:
        yield PAGES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        records.write(f"{BUCKET}/data/{name}", ends_early())
    assert f"data/{name}" not in storage.names()
    assert records.write(f"{BUCKET}/data/{name}", PAGES) == 2
    records.write(tmp_path / name, PAGES)
    assert storage.read(f"data/{name}") == (tmp_path / name).read_bytes()
    assert list(records.read(f"{BUCKET}/data/{name}", Document)) == PAGES
    assert find_files(f"{BUCKET}/data").train[0].name == "pages.jsonl"
    with pytest.raises(FileNotFoundError, match=f"^{BUCKET}/data/none.jsonl: there is no such"):
        next(read_json_lines(f"{BUCKET}/data/none.jsonl"))


def test_indexes_and_recorded_worlds_are_read(storage: Storage, tmp_path: pathlib.Path) -> None:
    from data_pipelines.record_web import record
    from data_pipelines.sample_web.making import site
    from gophercite.browser.settings import Settings

    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add(PAGES)
    storage.write("corpus.db", (tmp_path / "corpus.db").read_bytes())
    with DocumentIndex(f"{BUCKET}/corpus.db") as index:
        assert index.document("2") == PAGES[1]
        place = index._file.connection.execute("PRAGMA database_list").fetchone()[2]
        kept = pathlib.Path(place)
        assert kept.exists()
    assert not kept.exists()
    with pytest.raises(IndexFileError, match=f"^{BUCKET}/corpus.db: indexes can't be"):
        DocumentIndex(f"{BUCKET}/corpus.db", write=True)
    with pytest.raises(IndexFileError, match=f"^{BUCKET}/none.db: there is no such index"):
        DocumentIndex(f"{BUCKET}/none.db")

    pages = site(0, "test", 40, Settings())
    hidden = {page.address for page in pages if page.hidden}
    record([page.page for page in pages], tmp_path / "world", "w", hidden)
    storage.upload(tmp_path / "world", "worlds/w")
    with RecordedWorld(f"{BUCKET}/worlds/w") as there, RecordedWorld(tmp_path / "world") as here:
        assert list(there.documents()) == list(here.documents())
        assert there.search("town", 5) == here.search("town", 5)


def test_what_can_t_be_done_in_a_bucket_is_said(storage: Storage, model: Model) -> None:
    with (
        pytest.raises(StorageError, match="to a disk and copy it"),
        whole_folder(f"{BUCKET}/new"),
    ):
        pass
    with (
        pytest.raises(FileNotFoundError, match="no-such-bucket"),
        local_copy("gs://no-such-bucket/x"),
    ):
        pass
    with (
        pytest.raises(FileNotFoundError, match=r"^gs://no-such-bucket/x: there is no such"),
        write_whole("gs://no-such-bucket/x") as local,
    ):
        local.write_bytes(b"x")
