"""The sample world: natural, answerable, labelled truly, and disjoint between splits."""

import hashlib
import itertools
import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.sample_world import __main__ as command
from data_pipelines.sample_world import names, texts, vocabulary
from data_pipelines.sample_world.convert import to_question, to_rated_answer
from data_pipelines.sample_world.vocabulary import bundled_vocabulary, train_vocabulary
from data_pipelines.sample_world.wording import KINDS
from data_pipelines.sample_world.world import World, judge
from gophercite import evidence, records
from gophercite.text.sentences import sentence_spans
from tests.long_forms import LONG

SPLITS = st.sampled_from(names.SPLITS)
INDICES = st.integers(0, 10**6)


def test_names_are_distinct_and_each_belongs_to_one_split():
    owned = {
        split: {names.name(split, index) for index in range(names.count(split))}
        for split in names.SPLITS
    }
    for split, mine in owned.items():
        assert len(mine) == names.count(split)
        assert {names.split_of(name) for name in itertools.islice(mine, 50)} == {split}
    assert not owned["train"] & (owned["validation"] | owned["test"])
    assert not owned["validation"] & owned["test"]
    assert names.split_of("London") is None


@given(st.integers(0, 3), SPLITS, INDICES)
def test_no_name_of_another_split_is_ever_written(seed, split, index):
    question = World(seed, split).question(index)
    written = " ".join(page.document.title + " " + page.document.text for page in question.pages)
    invented = [word for word in re.findall(r"\w+", written) if names.split_of(word)]
    assert invented
    assert {names.split_of(word) for word in invented} == {split}


@given(st.integers(0, 3), SPLITS, INDICES)
def test_pages_are_english_sentences_with_their_facts_in_place(seed, split, index):
    world = World(seed, split)
    page = world.page(index % world.size)
    sentences = [page.document.text[start:end] for start, end in sentence_spans(page.document.text)]
    assert 3 <= len(sentences) <= 8
    assert " ".join(sentences) == page.document.text
    assert all(re.fullmatch(r"[A-Z].*[\w]\.", sentence) for sentence in sentences)
    assert page.document.title in sentences[0]
    assert 3 <= len(page.facts) <= 6
    assert len({fact.value for fact in page.facts}) == len(page.facts)
    for fact in page.facts:
        assert page.sentence(fact) in sentences
        assert fact.value in page.sentence(fact)
    assert not re.search(r"\b(a) [aeiou]|the the |  |[{}]", page.document.text)


def test_articles_suit_every_word_that_may_follow():
    for kind in KINDS:
        for attribute in kind.attributes:
            assert len(attribute.statements) == len(attribute.questions) == 3
            assert "{name}" in attribute.statements[0]
            assert all("{value}" in statement for statement in attribute.statements)
            assert all("{name}" in question for question in attribute.questions)


@given(SPLITS, INDICES)
def test_a_question_is_answered_by_one_of_its_pages(split, index):
    question = World(1, split).question(index)
    assert 1 <= len(question.pages) <= 3
    titles = [page.document.title for page in question.pages]
    assert len(set(titles)) == len(titles)
    assert question.target in question.pages
    assert question.target.document.title in question.text
    sentence = question.target.sentence(question.fact)
    assert judge(question, question.fact.value, question.target, sentence) == (True, True)


@given(INDICES)
def test_a_world_is_a_function_of_its_fields(index):
    assert World(2).rated_answer(index) == World(2).rated_answer(index)
    assert World(2).question(index).text != "" != World(3).question(index).text
    assert World(2).question(index).target.document != World(3).question(index).target.document


def test_bad_answers_are_bad_in_every_way():
    answers = [World(good_fraction=0.0).rated_answer(index) for index in range(200)]
    labels = {(answer.plausible, answer.supported) for answer in answers}
    assert labels == {(True, False), (False, False)}
    for answer in answers:
        judged = judge(answer.question, answer.claim, answer.page, answer.quote)
        assert judged == (answer.plausible, answer.supported)
        assert answer.quote in answer.page.document.text
    good = sum(World().rated_answer(index).supported for index in range(300))
    assert 0.6 < good / 300 < 0.8


@given(INDICES)
def test_the_judge_wants_the_right_page_and_the_whole_sentence(index):
    question = World().question(index)
    page, fact = question.target, question.fact
    sentence = page.sentence(fact)
    other = next(f for f in page.facts if f is not fact)
    assert judge(question, fact.value, None, sentence) == (True, False)
    assert judge(question, fact.value, page, sentence[:-1]) == (True, False)
    assert judge(question, fact.value, page, page.sentence(other)) == (True, False)
    assert judge(question, fact.value, page, page.document.text) == (True, True)
    assert judge(question, fact.value, page, sentence + "!") == (True, False)
    assert judge(question, "nobody", page, sentence) == (False, False)


@given(SPLITS, INDICES)
def test_records_are_valid_and_name_the_evidence(split, index):
    world = World(0, split)
    question = to_question(world.question(index))
    assert records.from_json(records.to_json(question), records.Question) == question
    (span,) = question.evidence
    document = next(d for d in question.documents if d.id == span.document)
    assert isinstance(document, records.Document)
    assert question.answers[0] in document.text[span.start : span.end]
    answer = to_rated_answer(world.rated_answer(index))
    assert records.from_json(records.to_json(answer), records.RatedAnswer) == answer


@given(INDICES)
def test_pretraining_texts_repeat_sentences_and_hold_no_mark(index):
    world = World()
    for parts in (texts.excerpts(world, index), texts.cited(world, index)):
        assert not parts[0].predictable
        whole = "".join(part.text for part in parts)
        assert not evidence.holds_mark(whole)
        sentences = re.findall(r"[A-Z][^.\n]*\.", parts[0].text)
        predictable = [part.text for part in parts if part.predictable]
        assert predictable
        for text in predictable:
            assert any(sentence in text for sentence in sentences)


def test_training_reads_the_texts_that_the_bundled_vocabulary_was_made_of(monkeypatch):
    """Their first thousand, and how it is asked to train; the next test trains, and takes long."""
    seen = []

    def note(texts, **settings):
        first = "\0".join(itertools.islice(texts, 1000))
        seen.append((hashlib.sha256(first.encode()).hexdigest()[:16], settings))

    monkeypatch.setattr(vocabulary, "train_sentencepiece", note)
    train_vocabulary()
    assert seen == [("8eb32edb16a0eae9", {"size": 2048, "model_type": "bpe"})]
    (file,) = vocabulary.VOCABULARY_FOLDER.glob("*.model")
    assert hashlib.sha256(file.read_bytes()).hexdigest()[:16] == "5d8938ef6ea9d691"


@LONG
def test_the_bundled_vocabulary_is_what_training_makes():
    bundled, trained = bundled_vocabulary(), train_vocabulary()
    assert [bundled.token_bytes(id) for id in range(bundled.size)] == [
        trained.token_bytes(id) for id in range(trained.size)
    ]


@pytest.mark.parametrize("before", ["", " ", "("])
def test_the_vocabulary_spells_names_in_few_pieces(before):
    vocabulary = bundled_vocabulary()
    unseen = [names.name("test", index) for index in range(300)]
    pieces = [len(vocabulary.encode(before + name)) - (before == "(") for name in unseen]
    assert sum(pieces) / len(pieces) < 2.2


def test_the_command_writes_files_that_read_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["x", "--out", str(tmp_path), "--questions", "9", "--pages", "20"]
    )
    command.main()
    for split in names.SPLITS:
        kinds = {
            "documents": records.Document,
            "questions": records.Question,
            "rated_answers": records.RatedAnswer,
        }
        sizes = {
            name: len(list(records.read(tmp_path / f"{name}_{split}.jsonl", kind, strict=True)))
            for name, kind in kinds.items()
        }
        assert sizes == {"documents": 20, "questions": 9, "rated_answers": 9}
        assert "Answer:" in (tmp_path / f"text_{split}.txt").read_text()
    assert "questions_test.jsonl: 9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--pages", "2000", "1490 pages"), ("--questions", "0", "expected 1 or more")],
)
def test_the_command_refuses_what_it_cannot_write(
    tmp_path, monkeypatch, capsys, option, value, message
):
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path), option, value])
    with pytest.raises(SystemExit):
        command.main()
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command.main(["--out", str(tmp_path / "file"), "--questions", "1"]) == 1
    assert capsys.readouterr().err == f"sample_world: {tmp_path / 'file'}: file exists\n"
