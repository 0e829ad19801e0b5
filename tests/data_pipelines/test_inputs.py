"""`Input`: batches that depend on the seed and the data, and on nothing else."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import seqio

from data_pipelines import tasks
from data_pipelines.features import DecoderFeatureConverter
from data_pipelines.inputs import Input
from data_pipelines.randomness import draws
from data_pipelines.sample_world.convert import to_rated_answer
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import evidence, records

VOCABULARY = bundled_vocabulary()
ANSWERS = 24


@pytest.fixture(scope="module")
def small_task(tmp_path_factory):
    """A task on a file with a few rated answers, good and bad."""
    path = tmp_path_factory.mktemp("records") / "rated.jsonl"
    world = World(split="train", good_fraction=0.6)
    answers = [to_rated_answer(world.rated_answer(index)) for index in range(ANSWERS)]
    records.write(path, answers)
    good = [answer for answer in answers if answer.plausible and answer.supported]
    assert 0 < len(good) < ANSWERS
    name = tasks.add_rated_answers("small", {"train": path, "validation": path}, VOCABULARY)
    return name, good


def _take(source, number, start=0):
    return list(itertools.islice(source.batches(start), number))


def _assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def _segments(batches):
    """The token lists of all segments, in order."""
    return [
        batch["tokens"][row][batch["segments"][row] == segment].tolist()
        for batch in batches
        for row in range(len(batch["tokens"]))
        for segment in range(1, batch["segments"][row].max() + 1)
    ]


@pytest.mark.parametrize("name", ["sample_world", "sample_world_pretraining", "small"])
@pytest.mark.parametrize("pack", [True, False])
def test_a_batch_is_the_same_whatever_the_start(name, pack, small_task):
    source = Input(name, "train", 256, 2, seed=7, pack=pack)
    whole = _take(source, 7)
    for start in (1, 6):
        _assert_equal(_take(source, 7 - start, start), whole[start:])


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_share_each_batch(hosts, small_task):
    whole = _take(Input("small", "train", 256, 4, seed=1), 5)
    shares = [
        _take(Input("small", "train", 256, 4, seed=1, process_index=i, process_count=hosts), 5)
        for i in range(hosts)
    ]
    joined = [
        {name: np.concatenate([share[name] for share in step]) for name in step[0]}
        for step in zip(*shares, strict=True)
    ]
    _assert_equal(joined, whole)


def test_each_epoch_has_all_examples_in_an_order_of_its_own(small_task):
    name, good = small_task
    source = Input(name, "train", 256, 1, seed=3, pack=False)
    segments = _segments(_take(source, 3 * len(good)))
    epochs = [segments[i : i + len(good)] for i in range(0, len(segments), len(good))]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]
    other = _segments(_take(dataclasses.replace(source, seed=4), len(good)))
    assert sorted(other) == sorted(epochs[0])
    assert other != epochs[0]


def test_only_rated_good_answers_are_trained_on(small_task):
    name, good = small_task
    batches = list(Input(name, "validation", 256, 4, seed=0).one_pass())
    triples = {
        evidence.parse(VOCABULARY.decode(tokens).split("Answer:")[1])
        for tokens in _segments(batches)
    }
    assert triples == {(evidence.Evidence(a.claim, a.title, a.quote),) for a in good}


def test_one_pass_has_each_example_once_and_pads_the_last_batch(small_task):
    name, good = small_task
    batches = list(Input(name, "validation", 256, 5, seed=0, pack=False).one_pass())
    assert all(batch["tokens"].shape == (5, 256) for batch in batches)
    assert len(_segments(batches)) == len(good)
    missing = 5 * len(batches) - len(good)
    assert missing > 0
    assert not batches[-1]["segments"][-missing:].any()


def test_a_pass_may_have_the_first_examples_alone(small_task):
    name, good = small_task
    whole = Input(name, "validation", 256, 1, seed=0, pack=False)
    few = dataclasses.replace(whole, limit=3)
    _assert_equal(list(few.one_pass()), list(whole.one_pass())[:3])
    _assert_equal(_take(few, len(good)), _take(whole, len(good)))
    beyond = dataclasses.replace(whole, limit=len(good) + 1)
    _assert_equal(list(beyond.one_pass()), list(whole.one_pass()))
    seqio.MixtureRegistry.remove("twice")
    seqio.MixtureRegistry.add("twice", [(name, 1), ("sample_world", 1)])
    mixed = dataclasses.replace(few, mixture_or_task_name="twice")
    assert len(list(mixed.one_pass())) == 6, "three of each task"


def test_the_loss_is_on_the_response_and_its_end(small_task):
    (batch,) = _take(Input("small", "train", 256, 1, seed=0, pack=False), 1)
    weighted = batch["targets"][0][batch["weights"][0] > 0]
    text = VOCABULARY.decode(weighted[:-1].tolist())
    assert text.startswith(" %<")
    assert text.endswith("]%")
    assert weighted[-1] == VOCABULARY.eos_id
    assert set(np.unique(batch["weights"])) == {0, 1}


def test_prompt_weight_is_a_setting_of_the_task(tmp_path):
    path = tmp_path / "rated.jsonl"
    world = World(good_fraction=1)
    records.write(path, [to_rated_answer(world.rated_answer(0))])
    tasks.add_rated_answers("weighted", {"train": path}, VOCABULARY, prompt_weight=0.25)
    (batch,) = _take(Input("weighted", "train", 256, 1, seed=0), 1)
    assert set(np.unique(batch["weights"])) == {0, 0.25, 1}


def test_tokens_that_only_go_on_with_a_copy_weigh_less(tmp_path):
    path = tmp_path / "rated.jsonl"
    answer = to_rated_answer(World(good_fraction=1).rated_answer(0))
    records.write(path, [answer])
    tasks.add_rated_answers("copied", {"train": path}, VOCABULARY, copied_weight=0.25)
    (batch,) = _take(Input("copied", "train", 256, 1, seed=0, pack=False), 1)
    tokens, weights = batch["targets"][0], batch["weights"][0]
    light = VOCABULARY.decode(tokens[weights == 0.25].tolist())
    full = VOCABULARY.decode(tokens[weights == 1].tolist())

    def halves(text):
        """The text's first four tokens, and the rest."""
        cut = len(VOCABULARY.decode(VOCABULARY.encode(text)[:4]))
        return text[:cut], text[cut:]

    (_, title), (sentence, quote) = halves(answer.title), halves(answer.quote)
    assert light.endswith(quote)
    assert light.removesuffix(quote) in ("", title)
    assert full.startswith(f" %<{answer.claim}>%(")
    assert full.endswith(f"{sentence}]%")
    assert tokens[weights == 1][-1] == VOCABULARY.eos_id


def test_pretraining_text_has_no_evidence_syntax():
    batches = _take(Input("sample_world_pretraining", "train", 384, 4, seed=0), 2)
    for tokens in _segments(batches):
        assert not any(mark in VOCABULARY.decode(tokens) for mark in evidence.MARKS)


def test_examples_longer_than_a_row_are_dropped_and_counted(small_task, caplog):
    name, good = small_task
    source = Input(name, "validation", 110, 2, seed=0)
    kept = _segments(source.one_pass())
    assert source.report.dropped == len(good) - len(kept) > 0
    assert source.report.longest_dropped > 110
    assert "longer than length=110" in caplog.text
    assert all(tokens[-1] == VOCABULARY.eos_id for tokens in kept)


def test_questions_are_what_was_encoded(small_task):
    name, good = small_task
    questions = Input(name, "validation", 256, 2, seed=0).questions(limit=5)
    assert [question.id for question in questions] == [answer.question_id for answer in good[:5]]
    for question, answer in zip(questions, good, strict=False):
        assert question.answers == (answer.claim,)
        (span,) = question.evidence
        document = next(d for d in question.documents if d.id == span.document)
        assert isinstance(document, records.Document)
        assert document.text[span.start : span.end] == answer.quote
    assert Input("sample_world_excerpts", "test", 256, 2, seed=0).questions(limit=5) == []


def test_mixtures_follow_their_rates():
    tasks.add_mixture("uneven", {"sample_world_excerpts": 1, "sample_world_citations": 3})
    segments = _segments(_take(Input("uneven", "train", 384, 8, seed=0), 8))
    cited = sum("Question:" in VOCABULARY.decode(tokens) for tokens in segments)
    assert 0.65 < cited / len(segments) < 0.85


def test_seqio_users_get_the_same_rows(small_task):
    name, good = small_task
    converter = DecoderFeatureConverter()
    lengths = {"tokens": 256, "weights": 256}
    dataset = seqio.get_dataset(name, lengths, converter, "validation", trim_output_features=False)
    rows = [{k: v[None] for k, v in row.items()} for row in dataset.as_numpy_iterator()]
    ours = list(Input(name, "validation", 256, 1, seed=0).one_pass())
    _assert_equal(rows, ours)
    assert converter.report.packed == len(good)


def test_bad_lines_are_named_counted_and_left_out_or_refused(tmp_path, caplog):
    path = tmp_path / "rated.jsonl"
    answer = records.to_json(to_rated_answer(World(good_fraction=1).rated_answer(0)))
    without_text = {**answer, "documents": [{"id": answer["document"], "snippet": "A town."}]}
    misspelled = {("quot" if key == "quote" else key): value for key, value in answer.items()}
    path.write_text("\n".join(map(json.dumps, (answer, misspelled, without_text))))
    tasks.add_rated_answers("faulty", {"train": path}, VOCABULARY)
    assert len(list(Input("faulty", "train", 256, 1, seed=0, shuffle=False).one_pass())) == 1
    assert "1 record read, 2 skipped" in caplog.text
    assert f"{path}:2: field 'quot': is unknown; did you mean 'quote'?" in caplog.text
    assert "documents[0].text" in caplog.text

    tasks.add_rated_answers("faulty", {"train": path}, VOCABULARY, strict=True)
    with pytest.raises(records.RecordError, match=":2: field 'quot'"):
        next(Input("faulty", "train", 256, 1, seed=0).batches())


def test_documents_are_cut_into_rows_without_loss(tmp_path):
    path = tmp_path / "documents.jsonl"
    text = " ".join(World().page(index).document.text for index in range(12))
    records.write(path, [records.Document("a", "Pages", text)])
    tasks.add_documents("long_text", {"train": path}, VOCABULARY)
    segments = _segments(Input("long_text", "train", 64, 2, seed=0).one_pass())
    assert VOCABULARY.decode(itertools.chain.from_iterable(segments)) == f"Pages\n{text}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mixture_or_task_name": "sample_wrold"}, "no task or mixture.*sample_world"),
        ({"split": "dev"}, "has no split 'dev'; it has train, validation, test"),
        ({"batch_size": 3, "process_count": 2}, "multiple of the number of processes"),
        ({"process_index": 1}, "process_index is 1"),
        ({"length": 1}, "length is 1"),
        ({"limit": 0}, "limit is 0; a pass takes at least 1 example"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    settings = {
        "mixture_or_task_name": "sample_world",
        "split": "train",
        "length": 256,
        "batch_size": 2,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        Input(**{**settings, **change})


def test_a_split_without_examples_left_says_so(tmp_path):
    path = tmp_path / "rated.jsonl"
    world = World(good_fraction=0)
    answers = (to_rated_answer(world.rated_answer(index)) for index in range(20))
    records.write(path, [answer for answer in answers if not answer.supported])
    tasks.add_rated_answers("all_bad", {"train": path}, VOCABULARY)
    source = Input("all_bad", "train", 256, 2, seed=0)
    for read in (source.batches, source.one_pass):
        with pytest.raises(records.RecordError, match="no example of split 'train' passes"):
            next(read())


def test_a_length_that_no_example_fits_ends_at_once(small_task):
    name, _ = small_task
    source = Input(name, "train", 16, 2, seed=0)
    for read in (source.batches, source.one_pass):
        with pytest.raises(records.RecordError, match=r"fits length=16 \(one has \d+ tokens"):
            next(read())


def test_draws_depend_on_every_part_of_their_key():
    keys = [(0, "window", "a"), (1, "window", "a"), (0, "order", "a"), (0, "window", "b")]
    numbers = [draws(*key).random() for key in keys]
    assert len(set(numbers)) == len(keys)
    assert numbers == [draws(*key).random() for key in keys]


def test_answers_about_one_page_stay_together_when_they_are_shuffled(tmp_path):
    world = World(split="train", good_fraction=1.0)
    answers = []
    for index in range(12):
        answer = to_rated_answer(world.rated_answer(index))
        for number in range(3):
            again = f"{answer.question_id}-{number}"
            answers.append(
                dataclasses.replace(answer, question_id=again, question=f"{again}: why?")
            )
    # In the file, answers about one page are far apart.
    records.write(tmp_path / "rated.jsonl", answers[::3] + answers[1::3] + answers[2::3])
    files = {"train": tmp_path / "rated.jsonl"}
    name = tasks.add_rated_answers("pages", files, VOCABULARY, by_page=True)
    source = seqio.TaskRegistry.get(name).source

    def pages(seed):
        dataset = source.get_dataset("train", seed=seed).as_numpy_iterator()
        return [json.loads(example["record"])["question_id"] for example in dataset]

    first, second = pages(1), pages(2)
    assert sorted(first) == sorted(second) == sorted(answer.question_id for answer in answers)
    assert first != second
    assert pages(1) == first
    for order in (first, second):
        together = [id.rsplit("-", 1)[0] for id in order]
        assert len(list(itertools.groupby(together))) == 12

    shared = next(Input(name, "train", 512, 2, seed=0, share_beginnings=True).batches())
    plain = next(Input(name, "train", 512, 2, seed=0).batches())
    assert set(shared) - set(plain) == {"branches"}
    assert shared["branches"].max() == 3

    def ends(batch):
        return (batch["tokens"] == VOCABULARY.eos_id).sum()

    assert ends(shared) > 1.5 * ends(plain)
