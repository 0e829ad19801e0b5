"""Questions made of pages: the answer and its sentence stand on the page that is shown."""

import json
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import citations, tasks
from data_pipelines.cloze import cloze
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import records
from gophercite.documents import Document

TEXT = (
    "The old mill on the river Anner was built by Mara Kesh in 1812. "
    "It had 14 wheels, of which the largest weighed two tons. "
    "Nobody knows why it burned down in the winter of the great flood. Short one. "
    "Since then the people of Lower Anner have carried their corn to Ormsby."
)
MILL = Document("mill", "The old mill", TEXT)
SENTENCES = re.split(r"(?<=\.) ", TEXT)


def _answers(parts):
    """The (answer, title, sentence) of each predictable part, whatever its style."""
    patterns = [
        re.escape(style)
        .replace(r"\{answer\}", "(?P<answer>.+?)")
        .replace(r"\{title\}", "(?P<title>.+?)")
        .replace(r"\{sentence\}", "(?P<sentence>.+)")
        for style in citations.STYLES
    ]
    for part in parts:
        if part.predictable:
            found = [m for pattern in patterns if (m := re.fullmatch(pattern, part.text))]
            yield found[0]["answer"], found[0]["title"], found[0]["sentence"]


@given(st.integers(0, 10_000))
def test_each_answer_is_a_phrase_of_a_sentence_of_the_page(seed):
    parts = cloze(MILL, random.Random(seed))
    assert parts[0].text.startswith(f"Page: The old mill\n{TEXT}\n\nQuestion: ")
    assert [part.predictable for part in parts] == [False, True] * (len(parts) // 2)
    answers = list(_answers(parts))
    assert len(answers) >= 2
    assert len({sentence for *_, sentence in answers}) == len(answers)
    for answer, title, sentence in answers:
        assert title == "The old mill"
        assert sentence in SENTENCES
        assert sentence != "Short one."
        assert re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", sentence)


@given(st.integers(0, 10_000))
def test_questions_ask_with_other_words_in_the_answer_s_place(seed):
    parts = cloze(MILL, random.Random(seed))
    questions = [part.text.split("Question: ")[1] for part in parts if not part.predictable]
    for question, (answer, _, sentence) in zip(questions, _answers(parts), strict=True):
        assert question.endswith("?\nAnswer:")
        asked = question.removesuffix("?\nAnswer:").lower().split()
        left = sentence.replace(answer, " ", 1).lower()
        added = [word for word in asked if word.strip(" ,.;:") not in left]
        assert len(added) <= 2  # "when", "in what year"
        if re.fullmatch(r"1812", answer):
            assert "when" in asked or "year" in asked
        if answer == "14":
            assert {"many", "much", "what"} & set(asked)


@given(st.text(), st.text(), st.integers(0, 100))
def test_any_document_becomes_a_text(title, text, seed):
    document = Document("d", title, text)
    parts = cloze(document, random.Random(seed))
    assert parts
    assert document.title in parts[0].text


@given(st.integers(0, 1000))
def test_of_a_long_page_a_stretch_of_whole_sentences_is_shown(seed):
    long = Document(
        "long", "Mills", " ".join(f"Mill number {n} burned in 1812." for n in range(200))
    )
    page = cloze(long, random.Random(seed))[0].text.split("\n\n")[0].removeprefix("Page: Mills\n")
    numbers = [int(n) for n in re.findall(r"Mill number (\d+) burned in 1812\.", page)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert 900 < len(page) <= 1000


def test_a_task_asks_anew_in_each_epoch_and_the_same_in_each_run(tmp_path):
    path = tmp_path / "documents.jsonl"
    records.write(path, [MILL])
    name = tasks.add_clozes("mill_clozes", {"train": path}, bundled_vocabulary())

    def texts():
        source = Input(name, "train", 512, 1, seed=0, pack=False)
        batches = source.batches()
        return [bundled_vocabulary().decode(next(batches)["tokens"][0].tolist()) for _ in range(4)]

    first = texts()
    assert first == texts()
    assert len(set(first)) > 1
    # The first token has no prediction; Input's targets follow the weights of the parts.
    batch = next(Input(name, "train", 512, 1, seed=0, pack=False).batches())
    assert {0.0, 0.2, 1.0} == {round(float(weight), 6) for weight in set(batch["weights"].flat)}


def test_the_json_of_a_text_is_what_its_parts_are():
    parts = [citations.Part("Page: Ä\n", False), citations.Part(" 1", True)]
    assert json.loads(json.dumps(citations.to_json(parts)))["parts"] == [
        {"text": "Page: Ä\n", "predictable": False},
        {"text": " 1", "predictable": True},
    ]
