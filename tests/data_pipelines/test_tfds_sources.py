"""TFDS sources on small prepared data sets that have the features of TFDS's own builders."""

import json

import pytest
import tensorflow_datasets as tfds

from data_pipelines import tasks
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.tfds_sources import DATASETS, TfdsSource
from gophercite import evidence

SQUAD = {
    "id": "a",
    "title": "Port_of_Alda",
    "context": "Alda is a port. It was founded in 1812, they say. Many ships call.",
    "question": "When was Alda founded?",
    "answers": {"text": ["in 1812", "1812", "1812"], "answer_start": [31, 34, 34]},
}
PASSAGE = "<P> Alda ( a port ) lies on the River Kesh . </P> More ."
NATURAL_QUESTIONS = {
    "id": "b",
    "document": {
        "title": "Alda",
        "url": "https://example.org/alda",
        "html": "<P>…</P>",
        "tokens": [{"token": token, "is_html": token.startswith("<")} for token in PASSAGE.split()],
    },
    "question": {"text": "where does alda lie", "tokens": ["where", "does", "alda", "lie"]},
    "annotations": [
        {
            "id": "1",
            "long_answer": {"start_token": -1, "end_token": -1, "start_byte": -1, "end_byte": -1},
            "short_answers": [],
            "yes_no_answer": -1,
        },
        {
            "id": "2",
            "long_answer": {"start_token": 0, "end_token": 13, "start_byte": 0, "end_byte": 60},
            "short_answers": [
                {
                    "start_token": 9,
                    "end_token": 11,
                    "start_byte": 0,
                    "end_byte": 1,
                    "text": "River Kesh",
                }
            ],
            "yes_no_answer": -1,
        },
    ],
}
TRIVIA_QA = {
    "question": "Which river runs through Alda?",
    "question_id": "c",
    "question_source": "",
    "entity_pages": [
        {
            "doc_source": "",
            "filename": "",
            "title": "Alda",
            "wiki_context": "A port. The Kesh River runs through it.",
        }
    ],
    "search_results": [],
    "answer": {
        "aliases": ["River Kesh", "Kesh River"],
        "normalized_aliases": [],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "normalized_value": "",
        "type": "",
        "value": "Keesh",
    },
}
OPEN = {"question": "who founded alda", "answer": ["Anna Kesh", "A. Kesh"]}
ASQA = {
    "ambiguous_question": "When was the mill of Alda built?",
    "sample_id": 7,
    "qa_pairs": [],
    "wikipages": [],
    "annotations": [
        {"knowledge": [], "long_answer": "The old mill was built in 1700, the new one in 1812."}
    ],
}
EXAMPLES = {
    "squad": SQUAD,
    "natural_questions": NATURAL_QUESTIONS,
    "natural_questions_open": OPEN,
    "trivia_qa": TRIVIA_QA,
    "asqa": ASQA,
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A TFDS folder with one example of each data set, written with its builder's features."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    for name, dataset in DATASETS.items():
        own, _, config = dataset.name.partition("/")
        info = tfds.builder(dataset.name, data_dir=folder).info
        tfds.dataset_builders.store_as_tfds_dataset(
            name=own,
            config=config or None,
            version=str(info.version),
            features=info.features,
            split_datasets={"train": [("only", EXAMPLES[name])]},
            data_dir=folder,
        )
    return folder


def _only_record(name, data_dir):
    source = TfdsSource(DATASETS[name], data_dir)
    (example,) = source.get_dataset("train", shuffle=True, seed=3).as_numpy_iterator()
    assert example["seed"] == 3
    return json.loads(example["record"])


def test_squad_quotes_the_sentence_of_the_most_frequent_answer(data_dir):
    record = _only_record("squad", data_dir)
    assert record["claim"] == "1812"
    assert record["title"] == "Port of Alda"
    assert record["quote"] == "It was founded in 1812, they say."


def test_an_answer_has_its_own_place_although_a_shorter_one_begins_there():
    context = "It is of 1812. Another is of 1812 B."
    texts, starts = ["1812", "1812 B", "1812 B"], [29, 29, 29]
    record = DATASETS["squad"].convert("q", "Mill", context, "When?", texts, starts)
    assert (record["claim"], record["quote"]) == ("1812 B", "Another is of 1812 B.")
    across = "The year 1812. B is next."
    texts, starts = ["1812", "1812. B", "1812. B"], [9, 9, 9]
    record = DATASETS["squad"].convert("q", "Mill", across, "When?", texts, starts)
    assert (record["claim"], record["quote"]) == ("1812. B", across)


def test_natural_questions_joins_tokens_without_markup(data_dir):
    record = _only_record("natural_questions", data_dir)
    assert record["claim"] == "River Kesh"
    assert record["documents"][0]["text"] == "Alda (a port) lies on the River Kesh."
    assert record["quote"] == "Alda (a port) lies on the River Kesh."


def test_trivia_qa_takes_the_alias_that_a_page_says(data_dir):
    record = _only_record("trivia_qa", data_dir)
    assert record["claim"] == "Kesh River"
    assert record["quote"] == "The Kesh River runs through it."


def test_open_questions_have_answers_and_no_documents(data_dir):
    record = _only_record("natural_questions_open", data_dir)
    assert record["documents"] == []
    assert record["answers"] == ["Anna Kesh", "A. Kesh"]


def test_asqa_has_long_answers_and_no_documents(data_dir):
    record = _only_record("asqa", data_dir)
    assert (record["id"], record["documents"]) == ("asqa-7", [])
    assert record["answers"] == [ASQA["annotations"][0]["long_answer"]]


@pytest.mark.parametrize("name", list(DATASETS))
def test_tasks_give_batches(name, data_dir):
    tasks.add_tfds(name, bundled_vocabulary(), data_dir=data_dir)
    batch = next(Input(f"tfds_{name}", "train", 128, 1, seed=0, pack=False).one_pass())
    text = bundled_vocabulary().decode(batch["tokens"][0].tolist())
    if name == "natural_questions_open":
        assert text.startswith("Question: who founded alda\nAnswer: Anna Kesh")
    elif name == "asqa":
        assert text.startswith("Question: When was the mill of Alda built?\nAnswer: The old mill")
    else:
        answer = text.split("Answer:")[1]
        assert len(evidence.parse(answer)) == 1


def test_absent_data_are_named_with_the_command_that_prepares_them(tmp_path):
    source = TfdsSource(DATASETS["trivia_qa"], str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"trivia_qa/rc.*tfds build trivia_qa/rc"):
        source.get_dataset("train")
    assert list(tmp_path.iterdir()) == []


def test_unknown_data_sets_are_refused():
    with pytest.raises(ValueError, match="natural_questions_open"):
        tasks.add_tfds("naturalquestions", bundled_vocabulary())
