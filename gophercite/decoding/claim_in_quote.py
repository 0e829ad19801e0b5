"""Evidence for a given claim: quotes that contain the claim they support (GopherCite, 2.1).

A sample chooses its claim first and its quote after it. A model that is right about the claim may
still quote the sentence next to the one that supports it. If a claim occurs in the pages, an
answer's quote can be made to contain it. A question's samples are marked if their quotes lack such
a claim, so that another sample is chosen. If all of a question's samples are marked, they are drawn
again in a second pass: first their own tokens up to the end of the claim, then evidence from a
graph in which every quote contains the claim. This takes a second pass because a sample's claim
isn't known when its prompt's tables are built. (If a token holds the end of the claim and more, the
second pass begins before that token, with the same text.) The distribution of claims does not
change, and a quote that contains its claim is kept.

A quote contains a claim if it has the claim's words in the same order as whole words; case and the
white space between them do not matter.
"""

import collections
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from gophercite import evidence
from gophercite.decoding.sampler import Samples
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence
from gophercite.quoting.constraint import PromptGraph, QuoteConstraint
from gophercite.quoting.pieces import Piece
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.table_sizes import TableSizes
from gophercite.quoting.token_walks import Limits
from gophercite.text.word_boundaries import word_boundaries
from gophercite.vocabularies import Vocabulary

# Maximum characters of a quote on either side of the claim: more than answers have tokens for. If a
# claim occurs often, there are fewer, but at least the second number.
_MOST_BESIDE, _LEAST_BESIDE = 2000, 200
# Maximum characters around all occurrences of a claim: a number may be on a page a thousand times.
_MOST_CHARACTERS = 64_000
_SECOND = 2  # folded into the keys of the second pass


class Lacking(NamedTuple):
    """A sample whose quote lacks its claim, though another quote of its prompt could contain it.

    Attributes:
      row: its index among all samples.
      prompt: its prompt.
      claim: its claim.
      begun: its tokens up to the end of the mark after its claim. If one token holds both the end
        of the mark and the beginning of the title, they stop before that token.
      rest: the bytes between the end of `begun` and the title: all or part of the mark, perhaps
        after the end of the claim. Empty if `begun` ends with the mark.
      holding: the pieces of its prompt whose runs contain the claim (`pieces_holding`).
    """

    row: int
    prompt: int
    claim: str
    begun: tuple[int, ...]
    rest: bytes
    holding: Mapping[str, Sequence[Piece]]


class Redraws(NamedTuple):
    """Samples to draw again.

    Attributes:
      rows: their indices among all samples.
      slots: the index of each among its prompt's redraws.
      prompts: the prompt of each.
      begun: number of tokens that each keeps from the first pass, up to the end of its claim.
      counts: number of samples that each prompt draws again.
      quotes: the tables; each sample begins with its own claim's tokens.
    """

    rows: Int[np.ndarray, " redraws"]
    slots: Int[np.ndarray, " redraws"]
    prompts: Int[np.ndarray, " redraws"]
    begun: Int[np.ndarray, " redraws"]
    counts: Int[np.ndarray, " prompts"]
    quotes: QuoteTables


class Shown(NamedTuple):
    """What the samples of some prompts may quote.

    Attributes:
      constraint: the constraint that built their tables.
      sources: the documents and windows that each prompt shows; trailing prompts without samples
        may be left out.
    """

    constraint: QuoteConstraint
    sources: Sequence[Sequence[Document | Window]]


class Draw(Protocol):
    """Draws samples of some prompts: `sampler.sample` with its other arguments bound."""

    def __call__(
        self,
        *,
        key: Key[Array, " prompts"],
        key_numbers: Sequence[int],
        quotes: QuoteTables,
        samples_per_prompt: Sequence[int],
        least_samples: int,
    ) -> Samples:
        """Returns the samples."""


def sample_supported(
    draw: Draw,
    keys: Key[Array, " prompts"],
    key_numbers: Sequence[int],
    quotes: QuoteTables,
    counts: Sequence[int],
    vocabulary: Vocabulary,
    shown: Shown,
    prompts_per_question: int = 1,
) -> tuple[Samples, Bool[np.ndarray, " samples"]]:
    """Draws samples so that each question has some whose quotes contain their claims, if possible.

    Args:
      draw: see `Draw`.
      keys: random key for each prompt's draws.
      key_numbers: a number for each prompt that is folded into its key.
      quotes: the prompts' tables.
      counts: number of samples per prompt.
      vocabulary: the model's vocabulary.
      shown: what the samples may quote. Answers of several triples, and quotes with omissions, are
        never marked or redrawn.
      prompts_per_question: number of consecutive prompts that belong to one question.

    Returns:
      The samples, with the model's own log-probabilities of all their tokens; and a mark for each
      sample whose quote lacks its claim, though another quote could contain it, given enough
      tokens. The samples of a question are never all marked.
    """
    most = max(counts)
    quotes = by_sample(quotes, most)
    samples = draw(
        key=keys,
        key_numbers=key_numbers,
        quotes=quotes,
        samples_per_prompt=counts,
        least_samples=most,
    )
    lacking = unsupported(vocabulary, shown, samples, counts)
    asked = np.repeat(np.arange(len(counts)) // prompts_per_question, counts)
    lacks = np.zeros(len(asked), bool)
    lacks[[each.row for each in lacking]] = True
    has_other = _has_other(asked, lacks)
    again = [each for each in lacking if not has_other[each.row]]
    redraws = to_redraw(shown.constraint, again, samples, counts, quotes, prompts_per_question)
    if redraws is not None:
        others = jax.vmap(jax.random.fold_in)(keys, np.array(key_numbers, np.int32))
        # Fewer samples, but the shapes of the first pass, so that both share one compiled program.
        drawn = draw(
            key=others,
            key_numbers=[_SECOND] * len(counts),
            quotes=redraws.quotes,
            samples_per_prompt=redraws.counts.tolist(),
            least_samples=most,
        )
        samples = put_into(samples, redraws, drawn)
        lacks[redraws.rows] = False
    return samples, lacks & _has_other(asked, lacks)


def _has_other(
    asked: Int[np.ndarray, " samples"], lacks: Bool[np.ndarray, " samples"]
) -> Bool[np.ndarray, " samples"]:
    """Whether each sample's question has a sample that is not marked."""
    return np.isin(asked, asked[~lacks])


def holds_claim(text: str, claim: str) -> bool:
    """Whether a text contains a claim, as the module's docstring defines it."""
    return next(_occurrences(text, claim), None) is not None


def pieces_holding(pieces: Mapping[str, Sequence[Piece]], claim: str) -> dict[str, list[Piece]]:
    """Cuts pieces so that their runs are exactly the runs that contain a claim.

    A run contains the claim if it begins at or before the beginning of some occurrence and ends at
    or after its end. There is one piece per occurrence, if anything can be quoted around it. Its
    runs begin after the beginning of the last occurrence that has a piece, because runs that begin
    earlier belong to that piece.

    Args:
      pieces: what can be quoted under each title (`pieces.quotable_pieces`).
      claim: any text.

    Returns:
      Pieces by title; titles without an occurrence are left out. The pieces reach 2,000 characters
      before and after each occurrence, so runs that are longer on either side are missing. If the
      claim occurs more than 16 times, the pieces are shorter, so that they have about 64,000
      characters together, but at least 200 on each side; further occurrences are then left out.
    """
    found: dict[str, dict[Piece, None]] = {}
    count = sum(
        1 for texts in pieces.values() for each in texts for _ in _occurrences(each.text, claim)
    )
    beside = max(_LEAST_BESIDE, min(_MOST_BESIDE, _MOST_CHARACTERS // (2 * max(count, 1))))
    characters = 0
    for title, texts in pieces.items():
        for piece in texts:
            begins = np.frombuffer(piece.begins, bool)
            ends = np.frombuffer(piece.ends, bool)
            after = 0
            for first, last in _occurrences(piece.text, claim):
                if characters >= _MOST_CHARACTERS:
                    break
                least = max(after, first - beside)
                may_begin = least + np.flatnonzero(begins[least : first + 1])
                may_end = last - 1 + np.flatnonzero(ends[last - 1 : last + beside])
                if not (len(may_begin) and len(may_end)):
                    continue
                after = first + 1
                low, high = int(may_begin[0]), int(may_end[-1]) + 1
                characters += high - low
                begin, end = np.zeros((2, high - low), bool)
                begin[may_begin - low] = True
                end[may_end - low] = True
                holding = Piece(piece.text[low:high], begin.tobytes(), end.tobytes())
                found.setdefault(title, {})[holding] = None
    return {title: list(texts) for title, texts in found.items()}


def _occurrences(text: str, claim: str) -> Iterator[tuple[int, int]]:
    """Yields where each occurrence of a claim in a text begins and ends, in order."""
    words = claim.split()
    if not words:
        return
    spelled = r"\s+".join(map(re.escape, words))
    pattern = re.compile(f"(?=({spelled}))", re.IGNORECASE)
    bounds = None
    for match in pattern.finditer(text):
        bounds = word_boundaries(text) if bounds is None else bounds
        first, last = match.span(1)
        if bounds[first] and bounds[last]:
            yield first, last


def unsupported(
    vocabulary: Vocabulary, shown: Shown, samples: Samples, counts: Sequence[int]
) -> list[Lacking]:
    """Finds the samples whose quote lacks a claim that some quote of their prompt could contain.

    Whether such a quote fits into the tokens isn't known before its graph is built (`to_redraw`).

    Args:
      vocabulary: the model's vocabulary.
      shown: as in `sample_supported`.
      samples: all prompts' samples, as returned by `sampler.sample`.
      counts: number of samples per prompt.
    """
    settings = shown.constraint.settings
    if settings.maximum_triples > 1 or settings.maximum_omissions:
        return []
    limits = settings.limits
    found: list[Lacking] = []

    @functools.cache
    def quotable(prompt: int) -> Mapping[str, Sequence[Piece]]:
        return shown.constraint.pieces(shown.sources[prompt])

    @functools.cache
    def holding(prompt: int, claim: str) -> Mapping[str, Sequence[Piece]]:
        pieces = pieces_holding(quotable(prompt), claim)
        legal = {title: _of_length(texts, limits) for title, texts in pieces.items()}
        return {title: texts for title, texts in legal.items() if texts}

    prompt_of = np.repeat(np.arange(len(counts)), counts).tolist()
    for row, prompt in enumerate(prompt_of):
        tokens = samples.tokens[row, : samples.lengths[row]].tolist()
        triple = _single(vocabulary.decode(tokens))
        if triple is None or holds_claim(triple.quote, triple.claim):
            continue
        if pieces := holding(prompt, triple.claim):
            begun, rest = _up_to_title(vocabulary, tokens, triple.claim)
            found.append(Lacking(row, prompt, triple.claim, begun, rest, pieces))
    return found


def to_redraw(
    constraint: QuoteConstraint,
    lacking: Sequence[Lacking],
    samples: Samples,
    counts: Sequence[int],
    quotes: QuoteTables,
    prompts_per_question: int = 1,
) -> Redraws | None:
    """Builds the tables of a second pass.

    They have the sizes of the first pass, so that both passes use one compiled program. If the
    graphs of all samples take more space, each question's most frequent claims come first. Each
    question gets at least one graph, even if the tables must grow for it.

    Args:
      constraint: the constraint of the first pass.
      lacking: the samples to draw again.
      samples: all prompts' samples.
      counts: number of samples per prompt.
      quotes: the tables of the first pass (`by_sample`), whose sizes the new ones get.
      prompts_per_question: as in `sample_supported`.

    Returns:
      Which samples are drawn again, and how; None if there are none. A sample is left out if no
      quote that contains its claim fits into the tokens, or if its graph doesn't fit into the
      tables.
    """
    sizes = TableSizes(quotes.claim.shape[0], quotes.token.shape[0])
    max_tokens = samples.tokens.shape[1]
    chosen = _that_fit(constraint, lacking, max_tokens, sizes, prompts_per_question)
    if not chosen:
        return None
    graphs = list({id(graph): graph for _, graph in chosen}.values())
    number = {id(graph): i for i, graph in enumerate(graphs)}
    tables = constraint.host_tables(graphs, max_tokens, sizes)
    slots, drawn = np.zeros(len(chosen), np.int32), np.zeros(len(counts), np.int32)
    first = np.zeros((len(counts), max(counts)), np.int32)
    for i, (each, graph) in enumerate(chosen):
        slots[i] = drawn[each.prompt]
        first[each.prompt, slots[i]] = tables.first[number[id(graph)]]
        drawn[each.prompt] += 1
    rows, prompts, begun = np.array([(x.row, x.prompt, len(x.begun)) for x, _ in chosen]).T
    tables = tables._replace(first=jnp.asarray(first))
    return Redraws(rows, slots, prompts, begun, drawn, tables)


def _that_fit(
    constraint: QuoteConstraint,
    lacking: Sequence[Lacking],
    max_tokens: int,
    sizes: TableSizes,
    prompts_per_question: int,
) -> list[tuple[Lacking, PromptGraph]]:
    """The samples whose graphs fit into tables of these sizes, in order; see `to_redraw`."""

    def question(each: Lacking) -> int:
        return each.prompt // prompts_per_question

    often = collections.Counter((question(each), each.claim) for each in lacking)
    firsts: dict[int, Lacking] = {}
    frequent = sorted(lacking, key=lambda each: -often[question(each), each.claim])
    for each in frequent:
        firsts.setdefault(question(each), each)
    made: dict[tuple[int, tuple[int, ...], bytes], PromptGraph | None] = {}
    taken: dict[int, tuple[Lacking, PromptGraph]] = {}
    used, kept, served = TableSizes(), set(), set()
    for each in [*firsts.values(), *frequent]:
        key = each.prompt, each.begun, each.rest
        if key not in made:
            made[key] = constraint.evidence_graph(each.holding, each.begun, each.rest)
        graph = made[key]
        if graph is None or graph.shortest_answer > max_tokens:
            continue
        if key not in kept:
            needed = TableSizes(*(a + b for a, b in zip(used, graph.sizes, strict=True)))
            fits = needed.nodes <= sizes.nodes and needed.edges <= sizes.edges
            if not fits and question(each) in served:
                continue
            used = needed
            kept.add(key)
        taken[each.row] = each, graph
        served.add(question(each))
    return [taken[row] for row in sorted(taken)]


def _of_length(pieces: Sequence[Piece], limits: Limits) -> list[Piece]:
    """Leaves out those pieces of `pieces_holding` whose runs are all too short or too long."""
    return [
        piece
        for piece in pieces
        if limits.minimum_quote <= len(piece.text)
        and piece.ends.find(1) + 1 - piece.begins.rfind(1) <= limits.maximum_quote
    ]


def put_into(samples: Samples, redraws: Redraws, drawn: Samples) -> Samples:
    """Replaces samples by their redraws.

    The claim's tokens keep the constrained log-probabilities that they had when the claim was
    drawn.

    Args:
      samples: the samples of the first pass.
      redraws: which of them were drawn again.
      drawn: the samples of the second pass.
    """
    first = np.cumsum([0, *redraws.counts])[redraws.prompts]
    again = first + redraws.slots
    merged = [None if part is None else np.array(part) for part in samples[:5]]
    for part, new in zip(merged, drawn[:5], strict=True):
        if part is not None and new is not None:
            part[redraws.rows] = new[again]
    combined = Samples(*merged, samples.passes + drawn.passes)  # type: ignore[arg-type, call-arg]
    before, after = samples.constrained_log_probs, combined.constrained_log_probs
    if before is not None and after is not None:
        forced = np.arange(before.shape[1]) < redraws.begun[:, None]
        after[redraws.rows] = np.where(forced, before[redraws.rows], after[redraws.rows])
    return combined


def by_sample(quotes: QuoteTables, samples: int) -> QuoteTables:
    """The same tables, with a start node for each sample instead of one for each prompt."""
    first = np.asarray(quotes.first)[:, None].repeat(samples, axis=1)
    return quotes._replace(first=jax.device_put(first))


def _single(text: str) -> Evidence | None:
    triples = evidence.parse(text)
    return triples[0] if len(triples) == 1 else None


def _up_to_title(
    vocabulary: Vocabulary, tokens: Sequence[int], claim: str
) -> tuple[tuple[int, ...], bytes]:
    """The tokens that end at or before the end of `>%(`, and the bytes from there to its end."""
    whole = f" {evidence.CLAIM_MARK}{claim}{evidence.TITLE_MARK}".encode()
    ends = np.cumsum([0, *(len(vocabulary.token_bytes(token) or b"") for token in tokens)])
    count = int(np.searchsorted(ends, len(whole), side="right")) - 1
    return tuple(tokens[:count]), whole[ends[count] :]
