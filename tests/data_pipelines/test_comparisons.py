"""Comparisons: what ratings decide, and the batches of pairs that reward modelling reads."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from data_pipelines import sources, tasks
from data_pipelines.comparison_input import ComparisonInput
from data_pipelines.comparisons import settle, turn
from data_pipelines.sample_world import names
from data_pipelines.sample_world.convert import to_comparison
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sample_world.world import COMPARED, World
from gophercite import evidence, prompts, records
from gophercite.evidence import Evidence
from gophercite.records import Comparison

VOCABULARY = bundled_vocabulary()
PLAIN = Comparison("1", "Who built it?", "test", ("Rosa did.", "Adam did."), None)


def rated(*votes, field="preferred"):
    ratings = tuple({"rater": str(n), field: vote} for n, vote in enumerate(votes))
    return settle(dataclasses.replace(PLAIN, ratings=ratings))


@pytest.mark.parametrize(
    ("votes", "preferred"),
    [
        ((1, 1, 0), 1.0),
        ((0, 1), 0.0),  # the lower label of those with as many votes
        ((1, 0.5), 0.5),
        ((1, 0.5, 0), 0.0),
        ((1, None, None), 1.0),  # those who are unsure don't vote
        ((True, "1", [1], 0.7, {"x": 1}), None),  # none of these is a preference
        ((), None),
    ],
)
def test_the_majority_decides_and_the_lower_label_of_several(votes, preferred):
    assert rated(*votes).preferred == preferred


def test_each_response_is_judged_by_its_own_votes():
    votes = ([True, False], [True, True], [None, 1], "yes", [True])
    settled = rated(*votes, field="supported_and_plausible")
    assert settled.supported_and_plausible == (True, False)
    assert settled.preferred is None


def test_what_a_record_says_itself_goes_before_its_ratings():
    ratings = ({"rater": "a", "preferred": 1, "supported_and_plausible": [False, False]},)
    own = dataclasses.replace(
        PLAIN, preferred=0.0, supported_and_plausible=(True, None), ratings=ratings
    )
    settled = settle(own)
    assert settled.preferred == 0
    assert settled.supported_and_plausible == (True, False)


def test_turning_twice_changes_nothing():
    one = to_comparison(World(split="train").comparison(3))
    assert turn(turn(one)) == one
    turned = turn(one)
    assert turned.responses == one.responses[::-1]
    assert turned.preferred == 1 - one.preferred
    assert set(one.supported_and_plausible) == {True, False}  # so that their order can be wrong
    assert turned.supported_and_plausible == one.supported_and_plausible[::-1]


def test_the_sample_world_s_comparisons_are_true():
    comparisons = [World(split="validation").comparison(index) for index in range(300)]
    for comparison in comparisons:
        good = [answer.plausible and answer.supported for answer in comparison.answers]
        assert sum(good) == 1
        assert comparison.preferred == float(good[1])
        for answer in comparison.answers:
            assert answer.quote in answer.page.document.text
            assert {names.split_of(word) for word in answer.claim.split()} <= {None, "validation"}
    # Neither place is the better one by itself.
    assert 0.4 < np.mean([comparison.preferred for comparison in comparisons]) < 0.6


def test_the_sample_world_compares_what_is_hard_to_tell_apart():
    differing = collections.Counter()
    for index in range(300):
        record = sources.comparison_of(World(split="validation"), index)
        (one,), (other,) = records.from_json(record, Comparison).responses
        parts = ("claim", "title", "quote")
        differing[tuple(p for p in parts if getattr(one, p) != getattr(other, p))] += 1
    # A wrong claim beside the right quote most often; then a wrong quote; then another page's fact.
    assert differing["claim",] > 150 > differing["quote",] > differing["claim", "title", "quote"]
    assert differing["claim", "title", "quote"] > 5


def test_every_fault_is_what_it_is_called():
    """Of 60 comparisons each: where claim and quote of the worse answer come from."""
    for fault in COMPARED:
        for index in range(60):
            comparison = World(max_documents=8, max_sentences=80).comparison(index, fault)
            question = comparison.question
            target, fact = question.target, question.fact
            assert comparison.fault == fault
            better, worse = comparison.answers[:: 1 if comparison.preferred == 0 else -1]
            assert (better.claim, better.quote) == (fact.value, target.sentence(fact))
            assert better.plausible
            assert better.supported
            assert not worse.supported
            right_claim, right_quote = worse.claim == fact.value, worse.quote == better.quote
            stated = {target.sentence(f): f for f in target.facts}.get(worse.quote)
            if fault in ("claim", "slip", "garble"):
                assert right_quote
                assert not right_claim
            elif fault in ("quote", "sentence", "cut"):
                assert right_claim
                assert not right_quote
            elif fault in ("fact", "alike"):  # a consistent answer to another question
                assert stated is not None
                assert stated is not fact
                assert worse.claim == stated.value
                assert worse.page is target
            elif fault == "mixed":
                assert stated is not None
                assert worse.claim not in (stated.value, fact.value)
                assert worse.claim in {f.value for f in target.facts}
            elif len(question.pages) > 1:
                assert worse.page is not target
                assert worse.claim in {f.value for f in worse.page.facts}


def test_an_answer_to_another_question_looks_as_the_right_one_does():
    """Where the page has another number for a number, that is what is compared with it."""
    found = [World().comparison(index, "alike") for index in range(300)]
    numbers = [
        (comparison, [answer.claim for answer in comparison.answers])
        for comparison in found
        if comparison.question.fact.value[0].isdigit()
        and sum(fact.value[0].isdigit() for fact in comparison.question.target.facts) > 1
    ]
    assert len(numbers) > 10
    assert all(claim[0].isdigit() for _, claims in numbers for claim in claims)


def test_comparisons_hold_enough_of_every_fault():
    """The shares that models learn from: near misses, quotes of other facts, other questions."""
    drawn = collections.Counter(World().comparison(index).fault for index in range(600))
    assert set(drawn) == set(COMPARED)
    assert drawn["slip"] > 200
    assert drawn["fact"] + drawn["alike"] > 50
    assert drawn["quote"] > 35


@pytest.fixture(scope="module")
def small_task(tmp_path_factory):
    """A file of comparisons of every form, one of them undecided and one with a bad line."""
    path = tmp_path_factory.mktemp("records") / "comparisons.jsonl"
    world = World(split="train")
    kept = [to_comparison(world.comparison(index)) for index in range(10)]
    kept.append(
        dataclasses.replace(PLAIN, id="votes", ratings=({"rater": "a", "preferred": 1},) * 2)
    )
    label = dataclasses.replace(PLAIN, id="label", question="Who sold it?")
    kept.append(dataclasses.replace(label, supported_and_plausible=(None, True)))
    records.write(path, [PLAIN, *kept])
    with path.open("a") as file:
        file.write('{"id": "bad", "question": "?", "source": "test", "responses": ["one"]}\n')
    files = {"train": path, "validation": path}
    return tasks.add_comparisons("small_comparisons", files, VOCABULARY), kept


def in_either_order(comparison):
    """The tokens of both responses, with the comparison in that order."""
    return {
        tuple(
            tuple(prompts.encode_judged(VOCABULARY, order.question, response))
            for response in order.responses
        ): order
        for order in (comparison, turn(comparison))
    }


def test_one_pass_has_each_decided_comparison_once_with_its_labels(small_task):
    name, kept = small_task
    expected = {}
    for comparison in map(settle, kept):
        expected |= in_either_order(comparison)
    seen = []
    for batch in ComparisonInput(name, "validation", 128, 8, seed=0, shuffle=False).one_pass():
        assert batch["tokens"].shape == (8, 2, 128)
        for pair in range(8):
            ends = batch["lengths"][pair]
            if not ends.any():  # filled up
                assert not batch["preferred_weights"][pair]
                assert not batch["label_weights"][pair].any()
                continue
            texts = tuple(tuple(batch["tokens"][pair, s, : ends[s]].tolist()) for s in (0, 1))
            assert not any(batch["tokens"][pair, s, ends[s] :].any() for s in (0, 1))
            comparison = expected[texts]
            seen.append(comparison.id)
            known = batch["preferred_weights"][pair] > 0
            assert (batch["preferred"][pair] if known else None) == comparison.preferred
            for side in (0, 1):
                known = batch["label_weights"][pair, side] > 0
                label = batch["supported_and_plausible"][pair, side] if known else None
                assert label == comparison.supported_and_plausible[side]
    assert sorted(seen) == sorted(comparison.id for comparison in kept)


def test_batches_do_not_depend_on_start_or_hosts(small_task):
    name, _ = small_task
    whole = list(itertools.islice(ComparisonInput(name, "train", 128, 4, seed=7).batches(), 6))
    late = list(itertools.islice(ComparisonInput(name, "train", 128, 4, seed=7).batches(2), 4))
    shares = [
        ComparisonInput(name, "train", 128, 4, seed=7, process_index=i, process_count=2).batches()
        for i in (0, 1)
    ]
    for number in range(6):
        halves = [next(share) for share in shares]
        for field, array in whole[number].items():
            joined = np.concatenate([half[field] for half in halves])
            np.testing.assert_array_equal(joined, array)
            if number >= 2:
                np.testing.assert_array_equal(late[number - 2][field], array)


def test_the_order_of_a_pair_is_drawn_anew_in_each_epoch(small_task):
    name, kept = small_task
    source = ComparisonInput(name, "train", 128, len(kept), seed=1)
    firsts = [
        {tuple(row[0].tolist()) for row in batch["tokens"]}
        for batch in itertools.islice(source.batches(), 4)
    ]
    assert len(set(map(frozenset, firsts))) > 1


def test_a_pair_with_a_response_that_does_not_fit_is_dropped_and_counted(small_task):
    name, kept = small_task
    texts = [
        [len(prompts.encode_judged(VOCABULARY, c.question, r)) for r in c.responses] for c in kept
    ]
    length = sorted(map(max, texts))[len(texts) // 2]
    source = ComparisonInput(name, "validation", length, 4, seed=0)
    found = sum(int((batch["lengths"] > 0).all(axis=1).sum()) for batch in source.one_pass())
    fitting = sum(max(pair) <= length for pair in texts)
    assert 0 < found == fitting < len(kept)
    assert source.report.dropped == len(kept) - fitting


def test_text_and_triples_are_read_alike():
    triple = Evidence("Rosa", "The mill", "Rosa built the mill.")
    asked = "Who built it?"
    response = prompts.encode_judged(VOCABULARY, asked, (triple,))
    assert response == prompts.encode_judged(VOCABULARY, asked, evidence.format(triple))
    prompt = prompts.encode_prompt(VOCABULARY, asked, [])
    assert response == prompt + prompts.encode_response(VOCABULARY, triple)
