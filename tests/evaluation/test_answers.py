"""A model answers questions: a real model, real sampling, real judgements."""

import copy
import dataclasses
import functools
import json
import threading

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabulary_fixtures import trained

from gophercite import evidence, prompts
from gophercite.decoding.claim_in_quote import holds_claim
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.answer_log import (
    AskingSettings,
    _line,
    _share,
    describe_asking,
    read_answer,
)
from gophercite.evaluation.answers import NOTHING_TO_QUOTE, JudgedSample, answer_questions
from gophercite.evaluation.metrics import judge
from gophercite.evaluation.question_prompts import PromptReport, PromptSettings
from gophercite.few_shot.prompting import FewShotSettings, Style
from gophercite.model_folders.folder import Model
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.records import Question
from tests.drawn_parameters import drawn_parameters
from tests.quoting.drawn_answers import biased_parameters

SETTINGS = SamplingSettings(max_tokens=8, temperature=0.0)
PAGE = Document("o", "Ormsby", "Built in 1874.")
QUESTIONS = [
    Question("q0", "When and where was it built?", "test", (PAGE,)),
    Question("q1", "When?", "test", (PAGE,), ("1874",)),
    Question("q2", "Where is it?", "test", (PAGE,)),
]


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    return Transformer(
        TransformerConfig(
            vocab_size=trained().size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
            position="rope", dtype="float32", scan_layers=False,
        )
    )  # fmt: skip


@functools.cache
def initial(transformer: Transformer) -> Params:
    return drawn_parameters(transformer)


def test_each_question_is_answered_once_as_the_sampler_answers_it(transformer: Transformer) -> None:
    params = initial(transformer)
    vocabulary = trained()
    found = dict(
        answer_questions(
            Model(transformer, params, vocabulary, {}),
            QUESTIONS,
            SETTINGS,
            jax.random.key(1),
            batch_size=2,
        )
    )
    assert sorted(found) == [0, 1, 2]
    for index, question in enumerate(QUESTIONS):
        prompt = prompts.encode_prompt(vocabulary, question.question, [PAGE])
        alone = sample(
            transformer,
            params,
            [prompt, prompt],
            jax.random.key(2),
            SETTINGS,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
        )
        (answer,) = found[index]
        assert answer.question is question
        assert list(answer.tokens) == alone.tokens[0, : alone.lengths[0]].tolist()
        assert answer.text == vocabulary.decode(answer.tokens)
        assert answer.judgement == judge(answer.text, question)
        assert answer.log_prob == pytest.approx(alone.log_probs[0].sum(), rel=1e-4)


def answered(transformer: Transformer, questions: list[Question], **changes):  # type: ignore[no-untyped-def]
    report = PromptReport()
    arguments = {"settings": SamplingSettings(max_tokens=40), "batch_size": 2} | changes
    found = answer_questions(
        Model(transformer, initial(transformer), trained(), {}),
        questions,
        key=jax.random.key(1),
        report=report,
        **arguments,
    )
    return dict(found), report


def test_the_likeliest_answer_of_all_pages_comes_first(transformer: Transformer) -> None:
    other = Document("i", "Ilse", "A river of 40 km. It feeds the salt yards.")
    questions = [Question("a", "When?", "test", (PAGE, other)), QUESTIONS[2]]
    settings = PromptSettings(200, "each")
    found, report = answered(transformer, questions, prompts=settings, samples=3)
    assert {index: len(samples) for index, samples in found.items()} == {0: 6, 1: 3}
    assert report.prompts == 3
    assert [sample.document for sample in found[0]].count("i") == 3
    for samples in found.values():
        likelihoods = [sample.log_prob for sample in samples]
        assert likelihoods == sorted(likelihoods, reverse=True)
    # What is sampled beside a prompt, and in what order, changes nothing.
    alone, _ = answered(transformer, questions, prompts=settings, samples=3, batch_size=1)
    for index, samples in alone.items():
        assert sorted(s.text for s in samples) == sorted(s.text for s in found[index])


def test_questions_without_a_legal_answer_are_declined(transformer: Transformer) -> None:
    short = Question("s", "When?", "test", (Document("s", "S", "1874"),))
    far = Document("f", "A very long title of a page. " * 5, "It was built in 1874.")
    questions = [QUESTIONS[0], short, Question("f", "When?", "test", (far,)), QUESTIONS[1]]
    found, report = answered(transformer, questions, constraint=QuoteConstraint(trained()))
    assert sorted(found) == [0, 3]
    assert report.declined == {1: NOTHING_TO_QUOTE, 2: NOTHING_TO_QUOTE}
    for (answer,) in found.values():
        assert answer.judgement.well_formed
        assert answer.judgement.verbatim
    nothing, report = answered(transformer, [short], constraint=QuoteConstraint(trained()))
    assert nothing == {}
    assert list(report.declined) == [0]


def test_quotes_that_lack_their_claims_are_marked_and_declined_questions_change_no_other(
    transformer: Transformer,
) -> None:
    """Each question has its own pages and key, whoever in its batch can't be answered."""
    vocabulary = trained()
    config = dataclasses.replace(transformer.config, tied_embeddings=False, norm="layer")
    of_words = Transformer(config)
    bias = np.full(config.vocab_size, -6.0, np.float32)  # claims are nearly all of these words
    pieces = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
    bias[[id for id, piece in enumerate(pieces) if piece in (b"a", b"b", b"d", b"e")]] = 3
    params = biased_parameters(of_words, jax.random.key(0), bias)
    texts = "1874", "a zwei b drei vier.", "d zwei e drei vier."
    asked = [
        Question(f"q{n}", "What?", "test", (Document(f"p{n}", "T", text),))
        for n, text in enumerate(texts)
    ]

    def of(questions: list[Question], claim_in_quote: bool) -> list[tuple[JudgedSample, ...]]:
        found = answer_questions(
            Model(of_words, params, vocabulary, {}),
            questions,
            SamplingSettings(max_tokens=40),
            jax.random.key(4),
            batch_size=3,
            constraint=QuoteConstraint(vocabulary, QuoteSettings(maximum_claim=1)),
            samples=4,
            claim_in_quote=claim_in_quote,
        )
        return [samples for _, samples in sorted(found)]

    def lacking(answers: list[tuple[JudgedSample, ...]]) -> list[list[bool]]:
        """Whether their claims are words of their page that their quotes lack."""
        return [
            [
                triple.claim in text.split() and not holds_claim(triple.quote, triple.claim)
                for sample in samples
                for triple in evidence.parse(sample.text)
            ]
            for text, samples in zip(texts[1:], answers, strict=True)
        ]

    def said(answers: list[tuple[JudgedSample, ...]]) -> list[list[str]]:
        return [[sample.text for sample in samples] for samples in answers]

    together = of(asked, True)
    assert said(together) == said(of(asked[1:], True))
    marked = [[sample.quote_lacks_claim for sample in samples] for samples in together]
    assert lacking(together) == marked
    assert any(map(any, marked))
    assert not any(map(all, marked))
    for question, samples in zip(asked[1:], together, strict=True):
        line = json.loads(json.dumps(_line(question, samples)))
        read = read_answer(question, line)
        assert [each.quote_lacks_claim for each in read] == [s.quote_lacks_claim for s in samples]
    programs = decode._cache_size()
    assert said(together[:1]) == said(of(asked[1:2], True))
    assert decode._cache_size() == programs, "batches are filled up to one size"
    unmarked = of(asked, False)
    assert any(map(any, lacking(unmarked)))
    assert not any(sample.quote_lacks_claim for samples in unmarked for sample in samples)


@given(st.integers(0, 400), st.integers(1, 40), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_every_process_has_a_share_of_the_questions(
    count: int, batch_size: int, processes: int, pages: int, each: bool
) -> None:
    question = dataclasses.replace(QUESTIONS[0], documents=(PAGE,) * pages)
    questions = [QUESTIONS[0], *[question] * count][:count]
    settings = AskingSettings(
        sampling=SETTINGS,
        prompts=PromptSettings(pages="each" if each else "together"),
        batch_size=batch_size,
    )
    shares = [_share(questions, settings, process, processes) for process in range(processes)]
    indices = sorted(index for share in shares for block in share for index in block)
    assert indices == list(range(count))
    blocks = [len(block) for share in shares for block in share]
    prompts = pages if each and count > 1 else 1
    batch = -(-batch_size // prompts)
    assert max(blocks, default=0) <= 8 * batch
    if count > (processes - 1) * batch:
        assert all(shares)
    if processes == 1:  # as full as they may be
        assert len(blocks) == -(-count // (8 * batch))


def test_graphs_of_the_next_batch_are_built_while_one_is_answered(
    transformer: Transformer,
) -> None:
    begun: list[str] = []
    second = threading.Event()

    class Watched(QuoteConstraint):
        def graph(self, sources):  # type: ignore[no-untyped-def]
            begun.append(sources[0].title)
            if len(begun) == 3:
                second.set()
            return super().graph(sources)

    pages = [Document(f"p{n}", f"Page {n}", "Built in 1874.") for n in range(4)]
    questions = [Question(f"q{n}", "When?", "test", (page,)) for n, page in enumerate(pages)]
    found = answer_questions(
        Model(transformer, initial(transformer), trained(), {}),
        questions,
        SamplingSettings(max_tokens=40),
        jax.random.key(1),
        batch_size=2,
        constraint=Watched(trained()),
    )
    next(found)
    assert second.wait(60)  # nobody has asked for the second batch's answers yet
    assert len(list(found)) == 3
    assert begun == ["Page 0", "Page 1", "Page 2", "Page 3"]


def test_claims_of_a_few_shot_prompt_get_evidence_by_rule(transformer: Transformer) -> None:
    few_shot = FewShotSettings(Style.LONG, examples=1)
    settings = PromptSettings(600, few_shot=few_shot)
    found, _ = answered(transformer, QUESTIONS, prompts=settings, samples=4, batch_size=3)
    answers = [answer for of_one in found.values() for answer in of_one]
    with_claims = [answer for answer in answers if answer.judgement.triples]
    assert with_claims
    for answer in with_claims:
        (triple,) = answer.judgement.triples
        assert triple.quote == PAGE.text
        assert answer.text.strip().startswith(triple.claim)


def test_answers_to_prompts_of_another_form_are_others(transformer: Transformer) -> None:
    """So an interrupted evaluation does not go on with them."""
    model = Model(transformer, initial(transformer), copy.copy(trained()), {})
    settings = AskingSettings(SETTINGS, PromptSettings())
    before = describe_asking(model, "m", settings, QUESTIONS)
    assert before == describe_asking(model, "m", settings, QUESTIONS)
    model.vocabulary.question_first = True
    assert before != describe_asking(model, "m", settings, QUESTIONS)
