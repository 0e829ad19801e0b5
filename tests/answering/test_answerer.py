"""A model answers from pages: the bundled one, really sampled under the quote constraint."""

import copy
import dataclasses
import functools
import itertools
import pathlib

import jax
import jax.numpy as jnp
import pytest

import gophercite
from gophercite import evidence
from gophercite.answering.answerer import Answerer
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages, IndexedPages, index_in_memory
from gophercite.answering.ranking import ranked_samples
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.claim_in_quote import holds_claim
from gophercite.decoding.consensus import consensus
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampler import NotNumbersError
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.records.answers import Answer, LeftOut, Sample
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.index import DocumentIndex
from tests.answering.test_many_questions import model as small_model
from tests.drawn_parameters import drawn_heads
from tests.long_forms import LONG

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
SETTINGS = AnsweringSettings(
    samples=7,
    prompt_tokens=120,
    sampling=SamplingSettings(max_tokens=48),
    quotes=QuoteSettings(maximum_claim=12, maximum_quote=40, maximum_triples=2),
)
FILLER = " In winter the roads are often closed." * 40
HOT = dataclasses.replace(
    SETTINGS,
    samples=8,
    joint=True,
    sampling=SamplingSettings(max_tokens=48, temperature=3.0),
    quotes=QuoteSettings(maximum_claim=4, maximum_quote=12, maximum_omissions=2),
)
BORAVEL = Document(
    "b",
    "Boravel",
    FILLER + " Boravel has a population of 6367. The town council is led by Ida Haroa." + FILLER,
    "https://boravel.example/",
    "2026-11-21T09:30:00Z",
)
RIVER = Document("r", "River Istira", "The River Istira is 310 kilometres long. It has pike.")
SECOND_RIVER = Document("s", "River Istira", "Its source is in a wood. It has been dammed twice.")
MARKED = Document("m", "A ]% title", "The roads are long, and in winter they are often closed.")
EMPTY = Document("e", "Empty", " ")
QUESTION = "What is the population of Boravel, and how long is the River Istira?"


@functools.cache
def model() -> Model:
    return load_model(MODEL)


@functools.cache
def answerer(joint: bool = False) -> Answerer:
    return Answerer(model(), dataclasses.replace(SETTINGS, joint=joint))


@functools.cache
def found_pages() -> FoundPages:
    with index_in_memory([BORAVEL, RIVER]) as index:
        return IndexedPages(index).find(QUESTION, 5)


@functools.cache
def answered(joint: bool = False, seed: int = 0) -> Answer:
    first, second = found_pages().results
    results = first, second, SearchResult(MARKED), SearchResult(EMPTY)
    left_out = (LeftOut("u", "status 404"),)
    found = dataclasses.replace(found_pages(), results=results, left_out=left_out)
    asked = f"{QUESTION} -site:e.example"
    return answerer(joint).answer(asked, found, seed=seed, keep_samples=True)


# Samples of both pages at once are proved below, with words left out.
@pytest.mark.parametrize("joint", [False, pytest.param(True, marks=LONG)])
def test_every_sample_is_proved_by_its_page(joint: bool) -> None:
    answer = answered(joint)
    assert answer.question == QUESTION
    assert len(answer.samples) == 7
    pages = {page.id: page for page in (BORAVEL, RIVER)}
    for sample in answer.samples:
        triples = evidence.parse(sample.text)
        assert [c.quote for c in sample.citations] == [triple.quote for triple in triples]
        for citation in sample.citations:
            page = pages[citation.document]
            assert page.text[citation.start : citation.end] == citation.quote
            assert (citation.title, citation.url) == (page.title, page.url)
            assert (citation.sha256, citation.retrieved_at) == (page.sha256, page.retrieved_at)
        assert sample.likelihood <= 0 < sample.score <= 1
        assert sample.likelihood <= sample.constrained_likelihood <= 0


@functools.cache
def answered_with_omissions(seed: int = 0) -> Answer:
    """Two pages of one title in one prompt; the sampling so hot that words are left out."""
    with index_in_memory([RIVER, SECOND_RIVER]) as index:
        found = IndexedPages(index).find(QUESTION, 5)
    return Answerer(model(), HOT).answer(QUESTION, found, seed=seed, keep_samples=True)


def samples_with_omissions() -> list[Sample]:
    return [sample for seed in range(10) for sample in answered_with_omissions(seed).samples]


def test_every_run_of_a_joined_quote_is_proved_by_its_page() -> None:
    samples = samples_with_omissions()
    pages = {page.id: page for page in (RIVER, SECOND_RIVER)}
    joined = 0
    for sample in samples:
        (triple,) = evidence.parse(sample.text)
        assert not evidence.faults(sample.text, pages.values(), maximum_omissions=2)
        said = [run for citation in sample.citations for run in citation.runs]
        assert said == triple.quote.split(evidence.OMISSION)
        for citation in sample.citations:
            page = pages[citation.document]
            assert citation.runs == tuple(page.text[start:end] for start, end in citation.spans)
            assert (citation.title, citation.url) == (page.title, page.url)
            assert (citation.sha256, citation.retrieved_at) == (page.sha256, page.retrieved_at)
            joined += len(citation.runs) > 1
        assert sample.likelihood <= 0 < sample.score <= 1
        assert sample.likelihood <= sample.constrained_likelihood <= 0
    assert joined > 5


def test_a_quote_of_several_pages_has_a_citation_for_each() -> None:
    samples = samples_with_omissions()
    several = [sample for sample in samples if len(sample.citations) > 1]
    assert several
    for sample in several:
        cited = [citation.document for citation in sample.citations]
        assert all(one != other for one, other in itertools.pairwise(cited))
        assert {citation.claim for citation in sample.citations} == {sample.citations[0].claim}
    assert any(len(sample.citations) == 1 for sample in samples)


def test_the_best_sample_is_the_answer() -> None:
    answer = answered()
    best = max(answer.samples, key=lambda sample: (sample.score, sample.likelihood))
    assert (answer.citations, answer.text) == (best.citations, best.text)
    assert (answer.score, answer.likelihood) == (best.score, best.likelihood)
    assert answer.scored_by == "consensus"
    # The samples take turns with two pages. The first page's four weigh twice the second's three.
    weights = [1 / 4, 1 / 6, 1 / 4, 1 / 6, 1 / 4, 1 / 6, 1 / 4]
    said = [evidence.parse(sample.text) for sample in answer.samples]
    means = [sample.likelihood / sample.tokens for sample in answer.samples]
    assert [sample.score for sample in answer.samples] == pytest.approx(
        consensus(said, means, weights)
    )
    assert [sample.consensus for sample in answer.samples] == [
        sample.score for sample in answer.samples
    ]
    assert answer.consensus == best.consensus
    assert not answer.declined


def test_a_page_weighs_as_its_rank_where_others_have_no_prompt() -> None:
    """One page is left out as its prompt is made, the other as its graph is."""
    first, second = found_pages().results
    found = FoundPages((first, SearchResult(MARKED), SearchResult(EMPTY), second))
    samples = answerer().answer(QUESTION, found, keep_samples=True).samples
    assert [each.citations[0].document for each in samples[:2]] == ["r", "b"]
    weights = [1 / 4, 1 / 4 / 3] * 3 + [1 / 4]
    said = [evidence.parse(sample.text) for sample in samples]
    means = [sample.likelihood / sample.tokens for sample in samples]
    assert [each.score for each in samples] == pytest.approx(consensus(said, means, weights))


def test_a_quote_that_lacks_its_claim_comes_last() -> None:
    answer = answered()
    of_best = [sample.text == answer.text for sample in answer.samples]
    samples = [
        dataclasses.replace(sample, quote_lacks_claim=is_best)
        for sample, is_best in zip(answer.samples, of_best, strict=True)
    ]
    ranked = ranked_samples(dataclasses.replace(answer, samples=tuple(samples)), 99)
    assert ranked[-1].text == answer.text
    others = [sample for sample in samples if not sample.quote_lacks_claim]
    assert ranked[0].text == max(others, key=lambda each: (each.score, each.likelihood)).text


def test_of_answers_that_claim_the_same_the_best_is_ranked() -> None:
    answer = answered()
    best = max(answer.samples, key=lambda each: (not each.quote_lacks_claim, each.score))
    again = dataclasses.replace(
        best,
        citations=tuple(
            dataclasses.replace(each, claim=f" The {each.claim.upper()}.", quote=each.quote + " ")
            for each in best.citations
        ),
        score=best.score - 1,
    )
    both = dataclasses.replace(answer, samples=(again, *answer.samples))
    assert ranked_samples(both, 99) == ranked_samples(answer, 99)
    claims = [tuple(each.claim for each in one.citations) for one in ranked_samples(answer, 99)]
    assert len(set(claims)) == len(claims) > 1


def test_samples_are_marked_whose_quotes_lack_their_claims() -> None:
    """Hot samples of claims of one character, most of which are no word of the page."""
    settings = dataclasses.replace(HOT, quotes=QuoteSettings(maximum_claim=1, maximum_quote=20))
    fish = "It has 3 bream, 4 carp, 5 pike, 6 eels, 7 perch, 8 roach and 9 trout. " + RIVER.text
    with index_in_memory([dataclasses.replace(RIVER, text=fish)]) as index:
        found = IndexedPages(index).find(QUESTION, 5)
    hot, text, marked = Answerer(small_model(), settings), fish, 0
    for seed in range(12):
        answer = hot.answer(QUESTION, found, seed=seed, keep_samples=True)
        for sample in answer.samples:
            (triple,) = evidence.parse(sample.text)
            lacks = holds_claim(text, triple.claim) and not holds_claim(triple.quote, triple.claim)
            assert sample.quote_lacks_claim == lacks
            marked += lacks
        assert not next(s for s in answer.samples if s.text == answer.text).quote_lacks_claim
    assert marked


def test_log_probabilities_may_choose() -> None:
    samples = answered().samples
    for choose, name, scores in (
        ("sum", "log-probability", [each.likelihood for each in samples]),
        (
            "mean",
            "mean log-probability of a token",
            [each.likelihood / each.tokens for each in samples],
        ),
    ):
        settings = dataclasses.replace(SETTINGS, choose=choose)
        answer = Answerer(model(), settings).answer(QUESTION, found_pages(), keep_samples=True)
        assert answer.scored_by == name
        assert [sample.score for sample in answer.samples] == pytest.approx(scores)
        assert answer.score == pytest.approx(max(scores))


def test_one_sample_alone_has_nothing_to_agree_with() -> None:
    alone = Answerer(small_model(), dataclasses.replace(SETTINGS, samples=1))
    assert alone.scored_by == "mean log-probability of a token"
    answer = alone.answer(QUESTION, found_pages())
    assert answer.score is not None
    assert answer.score < 0
    assert answer.consensus is None


@functools.cache
def reward_model() -> Model:
    """Heads drawn at random on the bundled model: what they say is not the matter here."""
    transformer, params = model().transformer, dict(model().params)
    params[HEADS] = drawn_heads(RewardModel(transformer), 0)
    return Model(transformer, params, model().vocabulary, {})


def test_a_reward_model_chooses_among_the_same_samples() -> None:
    by_reward = Answerer(model(), SETTINGS, reward_model=reward_model(), reward_name="taste")
    answer = by_reward.answer(QUESTION, found_pages(), keep_samples=True)
    assert [sample.text for sample in answer.samples] == [s.text for s in answered().samples]
    best = max(answer.samples, key=lambda sample: sample.reward or 0.0)
    assert (answer.scored_by, answer.reward_model) == ("reward", "taste")
    assert (answer.text, answer.score) == (best.text, best.reward)
    assert answer.supported_and_plausible == best.supported_and_plausible
    # The samples' consensus is there whatever chooses.
    assert [s.consensus for s in answer.samples] == [s.consensus for s in answered().samples]
    assert answer.consensus == best.consensus
    # What is scored is the question with what the sample says, and no page.
    scored = Scorer(reward_model()).score(QUESTION, [evidence.parse(best.text)])
    assert best.reward == pytest.approx(scored.reward[0], abs=1e-5)
    assert best.supported_and_plausible == pytest.approx(scored.supported_and_plausible[0])


def test_what_is_asked_for_chooses_whatever_scores() -> None:
    agreed = dataclasses.replace(SETTINGS, choose="consensus")
    found = Answerer(model(), agreed, reward_model=reward_model()).answer(QUESTION, found_pages())
    assert (found.scored_by, found.text) == ("consensus", answered().text)
    assert found.supported_and_plausible is not None
    with pytest.raises(ValueError, match="choose = 'reward': needs a reward model"):
        Answerer(model(), dataclasses.replace(SETTINGS, choose="reward"))
    with pytest.raises(ValueError, match="choose = 'best': must be one of reward, consensus, "):
        dataclasses.replace(SETTINGS, choose="best")


def test_samples_go_round_the_pages() -> None:
    cited = [sample.citations[0].document for sample in answered().samples]
    first, second = (result.document.id for result in found_pages().results)
    assert cited == [first, second, first, second, first, second, first]


def test_a_model_whose_logits_are_not_numbers_gives_no_answer() -> None:
    """Not even one that says why: no other question would fare better."""
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), model().params)
    damaged = Answerer(dataclasses.replace(model(), params=params), SETTINGS, "models/mine")
    said = r"models/mine: the model's logits are not numbers"
    with pytest.raises(NotNumbersError, match=said):
        damaged.answer(QUESTION, found_pages())
    with pytest.raises(NotNumbersError, match=said):
        next(answer_each(damaged, [Asked(QUESTION, found_pages)], ahead=0))


def test_an_answer_may_have_several_claims() -> None:
    several = (answered(), answered(seed=1))
    assert max(len(sample.citations) for answer in several for sample in answer.samples) == 2


def test_a_quote_is_from_the_window_around_the_snippet() -> None:
    place = BORAVEL.text.index("Boravel has a population")
    for sample in answered().samples:
        for citation in sample.citations:
            if citation.document == "b":
                assert place - 500 <= citation.start <= place + 500


def test_pages_that_cannot_be_used_are_named() -> None:
    assert answered().left_out == (
        LeftOut("u", "status 404"),
        LeftOut("e", "the page has no text"),
        LeftOut("m", "its title holds the reserved mark ']%' at character 2"),
    )


def test_the_seed_decides() -> None:
    again = Answerer(model(), SETTINGS)
    first = again.answer(QUESTION, found_pages(), keep_samples=True)
    assert first.samples == answered().samples
    assert answered(seed=1).samples != first.samples


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (FoundPages(()), "no page was found for the question"),
        (FoundPages((SearchResult(EMPTY),)), "the only page that was found cannot be quoted"),
        (FoundPages((SearchResult(MARKED),)), "its title holds the reserved mark"),
        (FoundPages((SearchResult(BORAVEL, "xyzzy, plugh and so on"),)), "not in the page"),
        (FoundPages((), (LeftOut("u", "status 404"),)), "cannot be read: status 404"),
    ],
)
def test_without_a_page_it_declines_with_the_reason(found: FoundPages, reason: str) -> None:
    for joint in (False, True):
        answer = answerer(joint).answer(QUESTION, found)
        assert answer.declined
        assert answer.reason is not None
        assert reason in answer.reason


def test_an_answer_that_is_too_short_for_any_quote_declines() -> None:
    settings = dataclasses.replace(SETTINGS, sampling=SamplingSettings(max_tokens=4))
    found = FoundPages((SearchResult(RIVER),))
    answer = Answerer(model(), settings).answer(QUESTION, found)
    assert answer.reason is not None
    assert "tokens, but answers may have only 4" in answer.reason


def test_a_question_that_fills_the_prompt_declines() -> None:
    answer = answerer().answer("Why? " * 200, FoundPages((SearchResult(RIVER),)))
    assert answer.reason is not None
    assert "leave no room for a page" in answer.reason


# tests/answering/test_many_questions.py draws one sample at a time.
@LONG
def test_how_many_are_drawn_at_a_time_changes_no_sample() -> None:
    settings = dataclasses.replace(SETTINGS, max_num_seqs=2)
    answer = Answerer(model(), settings).answer(QUESTION, found_pages(), keep_samples=True)
    assert [sample.text for sample in answer.samples] == [s.text for s in answered().samples]
    for one, other in zip(answer.samples, answered().samples, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize(
    ("parameters", "samples", "joint", "questions"),
    [
        (2**25, 16, True, 1),
        (2**25 - 1, 16, True, 32),
        (2**25, 15, True, 34),
        (2**25, 16, False, 32),
    ],
)
def test_a_large_model_on_a_cpu_answers_one_question_after_another(
    parameters: int, samples: int, joint: bool, questions: int
) -> None:
    """If it draws many answers to each, and from one prompt."""
    large = dataclasses.replace(model(), params={"x": jax.ShapeDtypeStruct((parameters,), "int8")})
    settings = dataclasses.replace(SETTINGS, samples=samples, joint=joint)
    assert Answerer(large, settings).usual_batch_size(5) == questions


@pytest.mark.parametrize("name", ["samples", "prompt_tokens", "max_num_seqs", "max_tokens"])
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = 0: must be at least 1"):
        AnsweringSettings(**{name: 0})


def test_prompts_are_as_long_as_the_model_was_trained_with() -> None:
    """Unless somebody says how long; and the settings of an answer say what it was."""
    settings = dataclasses.replace(SETTINGS, prompt_tokens=None)
    short = dataclasses.replace(model(), vocabulary=copy.copy(model().vocabulary))
    short.vocabulary.trained_length = 192
    for answerer, expected in (
        (Answerer(short, settings), 168),
        (Answerer(short, SETTINGS), 120),
        (Answerer(short, dataclasses.replace(settings, few_shot=1)), 3840),
        (Answerer(model(), settings), 3840),
    ):
        assert answerer.settings.prompt_tokens == expected
        lengths = [len(each.tokens) for each in answerer.prepare(QUESTION, found_pages()).contexts]
        assert expected == 3840 or 2 * expected < 3 * max(lengths) <= 3 * expected


@pytest.mark.parametrize(("max_tokens", "expected"), [(None, 768), (100, 924), (1024, None)])
def test_prompt_and_answer_fit_the_learned_positions(
    max_tokens: int | None, expected: int | None
) -> None:
    config = TransformerConfig(
        vocab_size=model().vocabulary.size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
        position="learned", max_positions=1024,
    )  # fmt: skip
    learned = dataclasses.replace(model(), transformer=Transformer(config))
    settings = AnsweringSettings(max_tokens=max_tokens)
    if expected is None:
        with pytest.raises(ValueError, match=r"max_tokens = 1024: .* has only 1024 learned pos"):
            Answerer(learned, settings)
        return
    assert Answerer(learned, settings).settings.prompt_tokens == expected


def test_answers_are_as_long_as_is_usual_for_the_length_in_training() -> None:
    """Unless somebody says how long, or less was sampled anyway."""
    trained = dataclasses.replace(model(), vocabulary=copy.copy(model().vocabulary))
    trained.vocabulary.trained_length = 1024
    three = QuoteSettings(maximum_triples=3)
    for answerer, expected in (
        (Answerer(trained), 128),
        (Answerer(trained, AnsweringSettings(quotes=three)), 256),
        (Answerer(trained, AnsweringSettings(max_tokens=200)), 200),
        (Answerer(trained, AnsweringSettings(sampling=SamplingSettings(max_tokens=40))), 40),
        (Answerer(trained, AnsweringSettings(few_shot=1)), 256),
        (Answerer(model()), 256),
    ):
        assert answerer.settings.max_tokens == answerer.settings.sampling.max_tokens == expected
    few = Answerer(trained, AnsweringSettings(max_tokens=4)).prepare(QUESTION, found_pages())
    assert few.no_room is not None
    assert few.no_room.setting == "max_tokens"


def test_from_python(tmp_path: pathlib.Path) -> None:
    for page in (BORAVEL, RIVER):
        (tmp_path / f"{page.title}.txt").write_text(page.text)
    given, read = (
        gophercite.answer(QUESTION, documents, MODEL, settings=SETTINGS, keep_samples=True)
        for documents in ([BORAVEL, RIVER], tmp_path)
    )
    assert given.model == str(MODEL)
    assert given.samples == answered().samples
    assert [sample.text for sample in read.samples] == [sample.text for sample in given.samples]
    addresses = {(tmp_path / f"{page.title}.txt").as_uri() for page in (BORAVEL, RIVER)}
    assert {c.url for sample in read.samples for c in sample.citations} == addresses


def test_omissions_from_python() -> None:
    given = gophercite.answer(
        QUESTION, [RIVER, SECOND_RIVER], MODEL, omissions=2, settings=HOT, keep_samples=True
    )
    assert given.samples == answered_with_omissions().samples


def test_from_python_without_a_model() -> None:
    with DocumentIndex(None, write=True) as index:
        index.add([RIVER])
        answer = gophercite.answer("How long is the river?", index, None)
    assert answer.is_baseline
    assert answer.citations[0].document == "r"
    with pytest.raises(ValueError, match="there is no question"):
        gophercite.answer(" ", [RIVER], None)
    with pytest.raises(FileNotFoundError):
        gophercite.answer("Why?", ["nowhere"], None)
    with pytest.raises(ValueError, match="a reward model needs a model"):
        gophercite.answer("Why?", [RIVER], None, reward_model="runs/rm")
