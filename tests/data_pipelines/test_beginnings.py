"""Models that were trained with a beginning of sequence read it first, whatever they read."""

import itertools
import json
import pathlib
import random

import numpy as np
import pytest

from data_pipelines import tasks
from data_pipelines.inputs import Input
from data_pipelines.sample_world.convert import to_rated_answer
from data_pipelines.sample_world.world import World
from gophercite import prompts, records
from gophercite.documents import Document
from gophercite.few_shot.prompting import FewShotSettings, few_shot_context
from gophercite.retrieval.contexts import ContextSettings, SearchResult, joint_context
from gophercite.vocabularies import Vocabulary, load_vocabulary

TOKENIZERS = pathlib.Path(__file__).parents[1] / "tokenizers"
GEMMA = load_vocabulary(TOKENIZERS / "gemma")
LLAMA = load_vocabulary(TOKENIZERS / "llama2")  # a dummy prefix, too


def segments(task: str, length: int) -> list[tuple[list[int], list[float]]]:
    """Tokens of all segments, with the weight of predicting each but the first."""
    found = []
    for batch in Input(task, "train", length, 2, seed=0).one_pass():
        for tokens, weights, row in zip(
            batch["tokens"], batch["weights"], batch["segments"], strict=True
        ):
            for segment in range(1, row.max() + 1):
                (there,) = np.nonzero(row == segment)
                found.append((tokens[there].tolist(), weights[there[:-1]].tolist()))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("records")
    world = World(split="train")
    text = " ".join(world.page(index).document.text for index in range(4))
    records.write(folder / "documents.jsonl", [Document("a", "Pages", text)])
    records.write(
        folder / "rated.jsonl",
        [to_rated_answer(world.rated_answer(index)) for index in range(6)],
    )
    return folder


@pytest.mark.parametrize(("kind", "vocabulary"), [("gemma", GEMMA), ("llama2", LLAMA)])
def test_every_piece_of_a_document_begins_and_nothing_is_lost(
    kind: str, vocabulary: Vocabulary, files: pathlib.Path
) -> None:
    path = files / "documents.jsonl"
    tasks.add_documents(f"pieces_{kind}", {"train": path}, vocabulary)
    rows = segments(f"pieces_{kind}", 64)
    assert len(rows) > 5
    for tokens, weights in rows:
        assert [place for place, id in enumerate(tokens) if id == vocabulary.bos_id] == [0]
        assert set(weights) == {1.0}
    read = vocabulary.decode(itertools.chain.from_iterable(tokens for tokens, _ in rows))
    text = json.loads(path.read_text("utf-8"))["text"]
    assert read == " " * vocabulary.dummy_prefix + f"Pages\n{text}"


def test_texts_and_answers_begin_once(files: pathlib.Path) -> None:
    tasks.add_repeats("repeats_gemma", {"train": files / "documents.jsonl"}, GEMMA)
    tasks.add_rated_answers("answers_gemma", {"train": files / "rated.jsonl"}, GEMMA)
    for task in ("repeats_gemma", "answers_gemma"):
        rows = segments(task, 2048)
        assert rows
        for tokens, _ in rows:
            assert [place for place, id in enumerate(tokens) if id == GEMMA.bos_id] == [0]


def test_prompts_and_what_is_judged_begin_once_within_their_room() -> None:
    page = World(split="train").page(0).document
    room = 300
    context = joint_context("When?", [SearchResult(page)], room, GEMMA, ContextSettings())
    few_shot = few_shot_context(
        "When?", [SearchResult(page)], 5 * room, GEMMA, FewShotSettings(examples=1),
        random.Random(0),
    )  # fmt: skip
    judged = prompts.encode_judged(GEMMA, "When?", "In 1874.")
    for tokens in (context.tokens, few_shot.tokens, judged):
        assert [place for place, id in enumerate(tokens) if id == GEMMA.bos_id] == [0]
    assert len(context.tokens) <= room
    assert len(few_shot.tokens) <= 5 * room
    assert GEMMA.decode(context.tokens) == prompts.prompt("When?", context.windows)
    for window in (*context.windows, *few_shot.windows):
        assert window.text == page.text[window.start : window.end]
