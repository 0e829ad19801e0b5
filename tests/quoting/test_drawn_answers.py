"""What the real sampler draws under the constraint, read by a judge that shares no code with it.

The short form has some hundred samples and two programs. With LONG_TESTS=1 it draws 10,000 in all
settings and with all kinds of tokenizers; benchmarks/legal_answers.py goes on from there.
"""

import dataclasses
import itertools
import pathlib
import re

import numpy as np
import pytest

from gophercite.decoding.sampler import NotNumbersError
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.table_sizes import TableSizes
from gophercite.vocabularies import load_vocabulary
from tests.long_forms import LONG
from tests.quoting import page_kinds
from tests.quoting.drawn_answers import KERNEL, SETTINGS, AnswerDrawer, Setting

ROOT = pathlib.Path(__file__).parents[2]
TOKENIZERS = [
    *(ROOT / f"tests/tokenizers/{name}/tokenizer.model" for name in ("llama2", "gemma")),
    *(
        ROOT / f"tests/tokenizers/{name}/tokenizer.json"
        for name in ("gpt2", "gpt_neox", "qwen", "llama3")
    ),
    ROOT / "data_pipelines/sample_world/model/vocabulary/vocabulary.model",
]

# All that the sampler does at once: rows that are refilled, prompts that wait.
BUSY = Setting(
    SamplingSettings(64, 1.2),
    QuoteSettings(maximum_triples=2, maximum_omissions=1),
    prompts=6,
    samples=12,
    rows=4,
    slots=2,
    varied=True,
    model=KERNEL,
)
ALIKE = Setting(
    SamplingSettings(64, 0.5),
    QuoteSettings(maximum_triples=2, maximum_omissions=1),
    prompts=2,
    samples=8,
    tight=1,
    varied=True,
    branches=(8,),
)
ASKED = Setting(SamplingSettings(48), prompts=4, samples=16, tight=2, asked=True)
SIZES = TableSizes(2**13, 2**16)  # large enough for all of these batches, so for one program


@pytest.mark.parametrize(
    ("tokenizer", "setting", "batches"),
    [(TOKENIZERS[0], BUSY, 2), (TOKENIZERS[-1], ALIKE, 5), (TOKENIZERS[5], ASKED, 1)],
    ids=["llama2-busy", "bundled-alike", "llama3-asked"],
)
def test_every_answer_that_the_sampler_draws_is_legal(tokenizer, setting, batches):
    drawer = AnswerDrawer(tokenizer, setting, SIZES)
    full = several = joined = samples = 0
    for kind, seed in itertools.product(page_kinds.made_up().values(), range(batches)):
        judged = drawer.judge_batch(kind, seed)
        assert not judged.offences, judged.offences[0]
        samples += judged.samples
        full += judged.full
        several += judged.several
        joined += judged.joined
    assert samples >= 250
    assert 0 < full < samples
    assert setting is ASKED or (several and joined)


def one_token_too_few(tables):
    """Costs that say that answers can be finished with a token less than it takes."""
    return tables._replace(cost=tables.cost - 1)


def other_pages(tables):
    return tables._replace(first=np.roll(tables.first, 1))


def no_minimum(tables):
    return tables._replace(need=np.zeros_like(tables.need))


def other_places(tables):
    """Within quotes each token leads to where another place with the same token leads to."""
    node = tables.node.copy()
    same = (tables.need == 0) & (tables.begins == 0) & (tables.characters > 0)
    order = np.lexsort((tables.token, ~same))[: same.sum()]
    for begin, end in itertools.pairwise(
        [0, *np.flatnonzero(np.diff(tables.token[order])) + 1, len(order)]
    ):
        of_token = order[begin:end]
        node[of_token] = np.roll(node[of_token], 1)
    return tables._replace(node=node)


def triples_uncounted(tables):
    return tables._replace(begins=np.zeros_like(tables.begins))


def claims_that_hold_anything(tables):
    """Marks are text in claims: whatever leads nowhere leads to where they begin."""
    following = tables.claim_next.copy()
    following[following >= len(following)] = 0
    return tables._replace(claim_next=following)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (one_token_too_few, "not with the end of sequence"),
        (other_pages, "no page has the title|on no page"),
        (no_minimum, "too short"),
        (other_places, "on no page"),
        (triples_uncounted, "triples, where 2 may be|omissions, where 1 may be"),
        (claims_that_hold_anything, "holds|no UTF-8|should be|no text|has no end"),
    ],
)
def test_tables_that_are_damaged_are_found_out(damage, named):
    """The tables are the program's input, so that all of these have the one that is compiled."""
    broken = AnswerDrawer(TOKENIZERS[0], BUSY, SIZES, damage)
    found = []
    for seed, kind in enumerate(page_kinds.made_up().values()):
        try:
            offences = broken.judge_batch(kind, seed).offences
        except NotNumbersError:  # a dead end, where no token is allowed: the sampler itself sees it
            assert damage in (other_places, claims_that_hold_anything)
            return
        for offence in offences:
            found += [fault for fault in offence.faults if re.search(named, fault)]
        if found:
            return
    pytest.fail(f"nothing like {named!r} was found")


def test_quotes_of_half_words_are_found_out():
    """Tables of quotes that begin and end anywhere, in the program of those of whole words."""
    broken = AnswerDrawer(
        TOKENIZERS[0], BUSY, SIZES, damage=lambda t: t._replace(settings=BUSY.quotes)
    )
    anywhere = dataclasses.replace(BUSY.quotes, boundaries="characters")
    broken._constraint = QuoteConstraint(load_vocabulary(TOKENIZERS[0]), anywhere)
    found = []
    for seed, kind in enumerate(page_kinds.made_up().values()):
        found += [each.faults for each in broken.judge_batch(kind, seed).offences]
    assert found
    assert all("begins or ends where none may" in str(faults) for faults in found)


@LONG
def test_ten_thousand_answers_are_legal(tmp_path):
    kinds = page_kinds.made_up()
    if page_kinds.DATA.exists():
        kinds |= page_kinds.real(page_kinds.DATA, tmp_path)
    samples = 0
    for number, setting in enumerate(SETTINGS.values()):
        mine = AnswerDrawer(TOKENIZERS[number % len(TOKENIZERS)], setting)
        seeds, had = itertools.count(), 0
        while had < 10_000 // len(SETTINGS):
            seed = next(seeds)
            for name, kind in kinds.items():
                judged = mine.judge_batch(kind, seed)
                assert not judged.offences, (number, name, seed, judged.offences[0])
                had += judged.samples
        samples += had
    assert samples >= 10_000
