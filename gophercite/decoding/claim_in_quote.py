"""Evidence for a given claim: quotes that contain the claim they support (GopherCite, 2.1).

A sample chooses its claim, then its quote, and a model that is right about the claim may still
quote the sentence next to the right one. If a claim occurs in the pages, an answer's quote can be
made to contain it. Of a question's samples, those whose quote lacks such a claim are marked, so
that another one is chosen. Only if all of them lack it are they redrawn in a second pass, because
which claim a sample makes isn't known when its prompt's tables are built: first their own tokens up
to the end of the claim, then evidence from a graph in which every quote contains the claim. The
distribution of claims does not change, and a quote that contains its claim is kept.

A quote contains a claim if it has the claim's words in the same order as whole words; case and the
white space between them do not matter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
from gophercite.text.word_boundaries import word_boundaries
from gophercite.vocabularies import Vocabulary

# Maximum characters of a quote on either side of the claim: more than answers have tokens for.
_MOST_BESIDE, _LEAST_BESIDE = 2000, 200
# Of all occurrences of a claim together: a number may be on a page a thousand times.
_MOST_CHARACTERS = 64_000
_SECOND = 2  # folded into the keys of the second pass


class Lacking(NamedTuple):
    """A sample whose quote lacks its claim, though another quote of its prompt could contain it.

    Attributes:
      row: its index among all samples.
      prompt: its prompt.
      begun: its number of tokens up to the end of its claim.
      graph: the graph of its claim's evidence, which begins with these tokens.
    """

    row: int
    prompt: int
    begun: int
    graph: PromptGraph


class Redraws(NamedTuple):
    """Samples to draw again.

    Attributes:
      rows: their indices among all samples.
      slots: the index of each among its prompt's redraws.
      prompts: the prompt of each.
      begun: number of tokens of each up to the end of its claim.
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
        quotes: QuoteTables,
        samples_per_prompt: Sequence[int],
        least_samples: int,
    ) -> Samples:
        """Returns the samples."""


def sample_supported(
    draw: Draw,
    keys: Key[Array, " prompts"],
    quotes: QuoteTables,
    counts: Sequence[int],
    vocabulary: Vocabulary,
    shown: Shown,
    prompts_per_question: int = 1,
) -> tuple[Samples, Bool[np.ndarray, " samples"]]:
    """Draws samples, some of each question with quotes that contain their claims, where they could.

    Args:
      draw: see `Draw`.
      keys: random key for each prompt's draws.
      quotes: the prompts' tables.
      counts: number of samples per prompt.
      vocabulary: the model's vocabulary.
      shown: what the samples may quote. Answers of several triples, and quotes with omissions, are
        never marked or redrawn.
      prompts_per_question: number of consecutive prompts that are of one question.

    Returns:
      The samples, with the model's own log-probabilities of all their tokens; and which of them
      have a quote that lacks their claim, though another quote could contain it: never all samples
      of a question.
    """
    most = max(counts)
    quotes = by_sample(quotes, most)
    samples = draw(key=keys, quotes=quotes, samples_per_prompt=counts, least_samples=most)
    lacking = unsupported(vocabulary, shown, samples, counts)
    asked = np.repeat(np.arange(len(counts)) // prompts_per_question, counts)
    lacks = np.zeros(len(asked), bool)
    lacks[[each.row for each in lacking]] = True
    has_other = np.zeros(asked.max(initial=0) + 1, bool)
    np.logical_or.at(has_other, asked, ~lacks)
    again = [each for each in lacking if not has_other[asked[each.row]]]
    if not again:
        return samples, lacks
    redraws = to_redraw(shown.constraint, again, samples, counts, quotes)
    others = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, _SECOND)
    # Fewer samples, but the shapes of the first pass, so that both share one compiled program.
    drawn = draw(
        key=others,
        quotes=redraws.quotes,
        samples_per_prompt=redraws.counts.tolist(),
        least_samples=most,
    )
    lacks[redraws.rows] = False
    return put_into(samples, redraws, drawn), lacks


def holds_claim(text: str, claim: str) -> bool:
    """Whether a text contains a claim, as the module's docstring defines it."""
    return next(_occurrences(text, claim), None) is not None


def pieces_holding(pieces: Mapping[str, Sequence[Piece]], claim: str) -> dict[str, list[Piece]]:
    """Cuts pieces so that their runs are exactly the runs that contain a claim.

    A run contains the claim if it begins at or before the beginning of some occurrence and ends at
    or after its end. There is one piece per occurrence. Its runs begin after the beginning of the
    previous occurrence, because runs that begin earlier belong to the previous piece.

    Args:
      pieces: what can be quoted under each title (`pieces.quotable_pieces`).
      claim: any text.

    Returns:
      Pieces by title; titles without an occurrence are left out. No run has more than 2,000
      characters on either side of its claim, fewer if the claim occurs more than 16 times: all
      pieces together have 64,000, and 200 on a side are left while there are occurrences for them.
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
                after = first + 1
                if not (len(may_begin) and len(may_end)):
                    continue
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

    Args:
      vocabulary: the model's vocabulary.
      shown: as in `sample_supported`.
      samples: all prompts' samples, as returned by `sampler.sample`.
      counts: number of samples per prompt.
    """
    settings = shown.constraint.settings
    if settings.maximum_triples > 1 or settings.maximum_omissions:
        return []
    graphs = _EvidenceGraphs(shown, samples.tokens.shape[1])
    found = []
    prompt_of = np.repeat(np.arange(len(counts)), counts).tolist()
    for row, prompt in enumerate(prompt_of):
        tokens = samples.tokens[row, : samples.lengths[row]].tolist()
        triple = _single(vocabulary.decode(tokens))
        if triple is None or holds_claim(triple.quote, triple.claim):
            continue
        begun = _up_to_title(vocabulary, tokens, triple.claim)
        graph = graphs.of(prompt, triple.claim, begun) if begun is not None else None
        if begun is not None and graph is not None:
            found.append(Lacking(row, prompt, len(begun), graph))
    return found


def to_redraw(
    constraint: QuoteConstraint,
    lacking: Sequence[Lacking],
    samples: Samples,
    counts: Sequence[int],
    quotes: QuoteTables,
) -> Redraws:
    """Builds the tables of a second pass.

    Args:
      constraint: the constraint of the first pass.
      lacking: the samples to draw again, at least one.
      samples: all prompts' samples.
      counts: number of samples per prompt.
      quotes: the tables of the first pass (`by_sample`), whose sizes the new ones get.
    """
    numbers: dict[int, int] = {}
    for each in lacking:
        numbers.setdefault(id(each.graph), len(numbers))
    graphs = list({id(each.graph): each.graph for each in lacking}.values())
    sizes = TableSizes(quotes.claim.shape[0], quotes.token.shape[0])
    tables = constraint.host_tables(graphs, samples.tokens.shape[1], sizes)
    slots, drawn = np.zeros(len(lacking), np.int32), np.zeros(len(counts), np.int32)
    first = np.zeros((len(counts), max(counts)), np.int32)
    for i, each in enumerate(lacking):
        slots[i] = drawn[each.prompt]
        first[each.prompt, slots[i]] = tables.first[numbers[id(each.graph)]]
        drawn[each.prompt] += 1
    rows, prompts, begun = np.array([each[:3] for each in lacking]).T
    tables = tables._replace(first=jnp.asarray(first))
    return Redraws(rows, slots, prompts, begun, drawn, tables)


class _EvidenceGraphs:
    """Graphs of evidence for claims, each built once."""

    def __init__(self, shown: Shown, max_tokens: int) -> None:
        self._shown = shown
        self._max_tokens = max_tokens
        self._pieces: dict[int, dict[str, list[Piece]]] = {}
        self._made: dict[tuple[int, tuple[int, ...]], PromptGraph | None] = {}

    def of(self, prompt: int, claim: str, begun: Sequence[int]) -> PromptGraph | None:
        """The graph with a claim's evidence; None if no evidence fits the tokens."""
        key = prompt, tuple(begun)
        if key not in self._made:
            self._made[key] = self._graph(prompt, claim, begun)
        return self._made[key]

    def _graph(self, prompt: int, claim: str, begun: Sequence[int]) -> PromptGraph | None:
        constraint = self._shown.constraint
        if prompt not in self._pieces:
            self._pieces[prompt] = constraint.pieces(self._shown.sources[prompt])
        holding = pieces_holding(self._pieces[prompt], claim)
        graph = constraint.evidence_graph(holding, begun) if holding else None
        return graph if graph is not None and graph.shortest_answer <= self._max_tokens else None


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
    return quotes._replace(first=_repeated(quotes.first, samples))


@partial(jax.jit, static_argnums=1)
def _repeated(first: Int[Array, " prompts"], samples: int) -> Int[Array, "prompts samples"]:
    return jnp.repeat(first[:, None], samples, axis=1)


def _single(text: str) -> Evidence | None:
    triples = evidence.parse(text)
    return triples[0] if len(triples) == 1 else None


def _up_to_title(vocabulary: Vocabulary, tokens: Sequence[int], claim: str) -> list[int] | None:
    """The tokens up to and including `>%(`; None if no token ends exactly there."""
    size = len(f" {evidence.CLAIM_MARK}{claim}{evidence.TITLE_MARK}".encode())
    byte_count = 0
    for place, token in enumerate(tokens):
        if byte_count == size:
            return list(tokens[:place])
        byte_count += len(vocabulary.token_bytes(token) or b"")
    return None
