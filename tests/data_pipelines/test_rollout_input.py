"""Batches of prompts: those of inference, the same on every path, and tables of one size."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from data_pipelines import tasks
from data_pipelines.document_choice import ContextReport
from data_pipelines.rollout_input import Dropped, RolloutInput, RolloutReport
from data_pipelines.sample_world.convert import to_question
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import prompts, records
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.documents import Document
from gophercite.evaluation.question_prompts import encode_question
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.retrieval.contexts import ContextSettings, Reason
from gophercite.retrieval.index import DocumentIndex
from tests.vocabulary_fixtures import vocabularies

VOCABULARY = bundled_vocabulary()
WORLD = [to_question(World().question(number)) for number in range(11)]
FREE = RolloutInput("sample_world_questions", "train", 256, 48, 64, 4, seed=5)
CONSTRAINED = dataclasses.replace(FREE, quotes=QuoteSettings())


@pytest.fixture(scope="module")
def world_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    records.write(path, WORLD)
    tasks.add_questions("world_file", {"train": path, "validation": path}, VOCABULARY)
    return path


def from_file(**changes):
    return dataclasses.replace(CONSTRAINED, mixture_or_task_name="world_file", **changes)


def take(source, number, start=0):
    return list(itertools.islice(source.batches(start), number))


def rows(batch, name, lengths):
    return [row[:length].tolist() for row, length in zip(batch[name], batch[lengths], strict=True)]


def asked(batches):
    """Prompt and question of every row that counts."""
    return [
        (prompt, question)
        for batch in batches
        for prompt, question, weight in zip(
            rows(batch, "prompts", "prompt_lengths"),
            rows(batch, "questions", "question_lengths"),
            batch["weights"],
            strict=True,
        )
        if weight
    ]


def assert_equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_prompts_are_those_of_inference_and_tables_those_of_their_pages(world_file):
    for source in (from_file(shuffle=False), from_file(shuffle=False, quotes=None)):
        (batch,) = take(source, 1)
        encoded = [encode_question(VOCABULARY, question) for question in WORLD[:4]]
        assert rows(batch, "prompts", "prompt_lengths") == encoded
        assert all(
            (row[length:] == VOCABULARY.pad_id).all()
            for row, length in zip(batch["prompts"], batch["prompt_lengths"], strict=True)
        )
        assert rows(batch, "questions", "question_lengths") == [
            prompts.encode_prompt(VOCABULARY, question.question, []) for question in WORLD[:4]
        ]
        pages = [question.documents for question in WORLD[:4]]
        if source.quotes is not None:
            constraint = QuoteConstraint(VOCABULARY, source.quotes)
            plain = constraint.tables([constraint.graph(shown) for shown in pages], 64)
            mine = batch["quotes"]
        else:
            tracker = FaultTracker(VOCABULARY)
            plain = tracker.tables([tracker.graph(shown) for shown in pages])
            mine = batch["fault_tables"]
        for name, values in plain._asdict().items():
            if name == "settings" or values is None:
                continue
            there = getattr(mine, name)
            same = min(len(there), len(values)) if values.ndim else None
            np.testing.assert_array_equal(
                there[:same] if same else there, values[:same] if same else values
            )
            assert there.dtype == values.dtype


@pytest.mark.parametrize("source", [CONSTRAINED, FREE], ids=["constrained", "free"])
def test_batches_depend_on_neither_start_nor_hosts(source):
    whole = take(source, 5)
    assert_equal(take(source, 2, start=3), whole[3:])
    shares = [take(source.share(index, 2), 5) for index in range(2)]
    for batch, *halves in zip(whole, *shares, strict=True):
        for name, values in batch.items():
            if isinstance(values, np.ndarray):
                joined = np.concatenate([half[name] for half in halves])
                np.testing.assert_array_equal(joined, values)
            else:
                for half in halves:
                    assert_equal(half[name], values)


@pytest.mark.parametrize("source", [CONSTRAINED, FREE], ids=["constrained", "free"])
def test_tables_of_a_run_have_one_size(source):
    batches = [*take(source, 15), *take(source, 5, start=100)]
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(batch)) for batch in batches}
    assert len(shapes) == 1
    fixed = dataclasses.replace(source, table_sizes=(20_000, 70_000))
    (batch,) = take(fixed, 1)
    tables = batch["quotes"] if source.quotes else batch["fault_tables"]
    assert (len(tables.start), len(tables.node)) == (20_001, 70_000)


def test_one_pass_asks_each_question_once_and_fills_up_the_last_batch(world_file):
    batches = list(from_file().one_pass())
    assert [batch["weights"].sum() for batch in batches] == [4, 4, 3]
    expected = [encode_question(VOCABULARY, question) for question in WORLD]
    assert [prompt for prompt, _ in asked(batches)] == expected
    last = batches[-1]
    for name in ("prompts", "prompt_lengths", "questions", "question_lengths"):
        np.testing.assert_array_equal(last[name][3], last[name][0])
    (batch,) = from_file(batch_size=16, process_index=1, process_count=2).one_pass()
    assert batch["weights"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert len(batch["quotes"].first) == 16
    constraint = QuoteConstraint(VOCABULARY, QuoteSettings())
    assert batch["quotes"].first[0] == constraint.graph(WORLD[0].documents).start


def test_epochs_have_all_questions_in_orders_of_their_own(world_file):
    source = from_file(batch_size=11)
    first, second = take(source, 2)
    assert sorted(asked([first])) == sorted(asked([second]))
    assert asked([first]) != asked([second])
    assert first["weights"].tolist() == [1] * 11


def test_questions_that_cannot_be_asked_are_dropped_and_counted(tmp_path, caplog):
    page = Document("a", "The mill", "Rosa built the mill in 1812.")
    made = [
        records.Question("long page", "Who?", "us", (Document("a", "T", "a house " * 60),)),
        records.Question("long question", "Who? " * 30, "us", (page,)),
        records.Question("no page", "Who?", "us", ()),
        records.Question("short page", "Who?", "us", (Document("a", "T", "abc"),)),
        records.Question("long title", "Who?", "us", (Document("a", "xq" * 30, "A mill."),)),
        records.Question("good", "Who built it?", "us", (page,)),
    ]
    path = tmp_path / "questions.jsonl"
    records.write(path, made)
    tasks.add_questions("mixed", {"train": path}, VOCABULARY)
    settings = {"prompt_length": 128, "question_length": 32, "max_tokens": 32, "batch_size": 1}
    source = RolloutInput("mixed", "train", **settings, seed=0, quotes=QuoteSettings())
    ((prompt, _),) = asked(source.one_pass())
    assert prompt == encode_question(VOCABULARY, made[-1])
    assert source.report.asked == 1
    assert source.trained_length == settings["prompt_length"] + settings["max_tokens"]
    assert source.report.dropped == {
        Dropped.LONG_PROMPT: 1, Dropped.LONG_QUESTION: 1, Dropped.NO_QUOTE: 2, Dropped.NO_ROOM: 1
    }  # fmt: skip
    assert "question 'no page' was dropped" in caplog.text
    assert "2: nothing can be quoted from the documents shown" in str(source.report)

    free = RolloutInput("mixed", "train", **settings, seed=0)
    assert len(asked(free.one_pass())) == 4  # whatever is sampled, its faults can be tracked
    assert set(free.report.dropped) == {Dropped.LONG_PROMPT, Dropped.LONG_QUESTION}

    none = dataclasses.replace(source, max_tokens=5, report=RolloutReport())
    for read in (none.batches, none.one_pass):
        with pytest.raises(records.RecordError, match="can be asked: 0 questions asked"):
            next(read())


@pytest.mark.parametrize("max_tokens", range(12, 26, 3))
def test_what_is_dropped_has_no_legal_answer(max_tokens, world_file):
    source = from_file(max_tokens=max_tokens, batch_size=1)
    constraint = QuoteConstraint(VOCABULARY, source.quotes)
    fitting = [
        encode_question(VOCABULARY, question)
        for question in WORLD
        if constraint.graph(question.documents).shortest_answer <= max_tokens
    ]
    if fitting:
        assert [prompt for prompt, _ in asked(source.one_pass())] == fitting
    else:
        with pytest.raises(records.RecordError, match="so few tokens"):
            next(source.one_pass())


def test_a_reward_model_may_have_a_vocabulary_of_its_own(world_file, tmp_path):
    judge = vocabularies()["byte-level"]
    judge.save(tmp_path / "judge")
    for given in (judge, str(tmp_path / "judge")):
        source = from_file(shuffle=False, judge_vocabulary=given, question_length=200)
        (batch,) = take(source, 1)
        assert rows(batch, "questions", "question_lengths") == [
            prompts.encode_prompt(judge, question.question, []) for question in WORLD[:4]
        ]
        assert rows(batch, "prompts", "prompt_lengths")[0] == encode_question(VOCABULARY, WORLD[0])


def test_questions_are_those_of_the_file(world_file):
    assert from_file().questions(3) == WORLD[:3]


def test_validation_asks_about_entities_that_training_has_never_seen():
    def titles(split):
        asked = dataclasses.replace(FREE, split=split).questions(200)
        return {page.title for question in asked for page in question.documents}

    train, validation = titles("train"), titles("validation")
    assert not train & validation
    trained_on = {
        page.title
        for index in range(200)
        for page in to_question(World().question(index)).documents
    }
    assert train == trained_on


# --- Long pages ---

LONG = ContextSettings()


def found(number, rank):
    """A page too long for a prompt, with its snippet."""
    name = f"Town {number}-{rank}"
    filling = [f"It has {i} houses and a mill." for i in range(60)]
    filling.insert(20 + 5 * rank, f"The town of {name} was founded in {1200 + number}.")
    snippet = f"The town of <b>{name}</b> was founded in …"
    return records.FoundDocument(f"{number}-{rank}", name, " ".join(filling), snippet=snippet)


def long_question(number):
    pages = tuple(found(number, rank) for rank in range(7))
    start = pages[1].text.find("The town")
    gold = records.Span(pages[1].id, start, pages[1].text.find(".", start) + 1)
    return records.Question(
        f"q{number}", f"When was Town {number}-1 founded?", "us", pages, evidence=(gold,)
    )


@pytest.fixture(scope="module")
def long_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "questions.jsonl"
    records.write(path, map(long_question, range(6)))
    return path


def test_long_pages_are_cut_to_one_to_five_windows_anew_in_each_epoch(long_file):
    report = ContextReport()
    tasks.add_questions("long", {"train": long_file}, VOCABULARY, contexts=LONG, report=report)
    source = RolloutInput("long", "train", 256, 32, 64, 6, seed=1, quotes=QuoteSettings())
    batches = take(source, 8)
    assert set(report.documents) == {1, 2, 3, 4, 5}
    assert not source.report.dropped
    assert not report.dropped
    single = 0
    texts: dict[str, set[str]] = {}
    for prompt, question in asked(batches):
        assert len(prompt) <= 256
        text = VOCABULARY.decode(prompt)
        shown = sorted(int(page.split("\n")[0][-1]) for page in text.split("Page: ")[1:])
        assert shown == list(range(len(shown)))  # the first results, in any order
        single += len(shown) == 1
        texts.setdefault(VOCABULARY.decode(question), set()).add(text)
    assert single / 48 > 1 / 3 * 0.7
    assert len(texts) == 6
    assert all(len(drawn) > 4 for drawn in texts.values())
    assert_equal(take(source, 2, start=6), batches[6:])


def test_gold_spans_move_with_the_windows(long_file):
    tasks.add_questions("long", {"train": long_file}, VOCABULARY, contexts=LONG)
    seen = 0
    for seed in range(3):
        for question in RolloutInput("long", "train", 256, 32, 64, 1, seed).questions(6):
            for span in question.evidence:
                (page,) = (page for page in question.documents if page.id == span.document)
                assert page.text[span.start : span.end].startswith("The town of Town")
                seen += 1
    assert seen > 3


def test_pages_come_from_an_index(long_file, tmp_path):
    questions = [long_question(number) for number in range(2)]
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add(page for question in questions[:1] for page in question.documents)
    hits = [
        dataclasses.replace(
            question,
            documents=tuple(records.Hit(page.id, page.snippet) for page in question.documents),
        )
        for question in questions
    ]
    path = tmp_path / "hits.jsonl"
    records.write(path, hits)
    report = ContextReport()
    tasks.add_questions(
        "hits", {"train": path}, VOCABULARY, contexts=LONG, report=report,
        index=tmp_path / "corpus.db",
    )  # fmt: skip
    source = RolloutInput("hits", "train", 256, 32, 64, 1, 0)
    ((prompt, _),) = asked(source.one_pass())
    assert "Town 0-0" in VOCABULARY.decode(prompt)
    assert set(report.dropped) == {Reason.OTHER_PAGE}
    with pytest.raises(ValueError, match="needs contexts"):
        tasks.add_questions("hits", {"train": path}, VOCABULARY, index=tmp_path / "corpus.db")
    tasks.add_questions("hits", {"train": path}, VOCABULARY)
    with pytest.raises(ValueError, match=r"question 'q0' lacks field 'documents\[0\].text'"):
        next(source.one_pass())


def test_tasks_are_mixed_at_their_rates(long_file, world_file):
    tasks.add_questions("long", {"train": long_file}, VOCABULARY, contexts=LONG)
    tasks.add_mixture("one_to_four", {"world_file": 1, "long": 4})
    batches = take(RolloutInput("one_to_four", "train", 256, 48, 64, 20, seed=0), 6)
    long = sum("Town" in VOCABULARY.decode(question) for _, question in asked(batches))
    assert 0.7 < long / 120 < 0.9


@pytest.mark.parametrize("name", ["prompt_length", "question_length", "max_tokens"])
def test_lengths_of_nothing_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        dataclasses.replace(FREE, **{name: 0})
