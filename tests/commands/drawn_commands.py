"""Actions and answers that the real sampler draws for a browser, judged by what it says of them.

A model with random weights browses worlds made of the pages of `page_kinds`, several episodes side
by side; each of its samples is tried in its state, and some are gone on with. Judges are the
environment's own `step`, `browsing_judge` and, for the rows of tokens, `answer_judge`.
"""

import collections
import dataclasses
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.browser.environment import page_of, reset, step
from gophercite.browser.observation import prompt
from gophercite.browser.pages import Page
from gophercite.browser.settings import Settings
from gophercite.browser.shown import Link
from gophercite.browser.state import State
from gophercite.browser.worlds import SiteWorld
from gophercite.commands.constraint import CommandConstraint, CommandSettings
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document, normalise_text
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.quoting.table_sizes import LEAST, TableSizes
from gophercite.retrieval.engine import Hit, SearchError
from gophercite.vocabularies import load_vocabulary
from tests.commands import browsing_judge
from tests.quoting import answer_judge, page_kinds, shown_pages, tokenizer_files
from tests.quoting.drawn_answers import CONFIG, KERNEL, biased_parameters

PROMPT_TOKENS = 64  # the last of a prompt, which are all that the model reads
LONGEST_PAGE = 6000  # characters

_WORDS = ("Search", "Clicked", "Find", "Quote:", "Scrolled", "Top", "Back", "End:")


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How actions are drawn; all batches of one drawing and vocabulary size have one program.

    Attributes:
      sampling: the sampler's settings.
      episodes: side by side.
      samples: of each state.
      rounds: of samples in a batch; episodes go on from one to the next.
      rows: samples of a state in flight; all when None.
      model: what is not the default of `drawn_answers.CONFIG`.
    """

    sampling: SamplingSettings
    episodes: int = 8
    samples: int = 16
    rounds: int = 6
    rows: int | None = None
    model: tuple[tuple[str, Any], ...] = ()


DRAWINGS = {
    "defaults": Drawing(SamplingSettings(64)),
    "rows refilled": Drawing(SamplingSettings(48, 1.3, free_log_probs=False), rows=6, model=KERNEL),
    "hardly any tokens, top-k": Drawing(SamplingSettings(12, 2.0, top_k=5), rows=8),
    "greedy, bfloat16": Drawing(
        SamplingSettings(40, 0.0), samples=2, rounds=12, model=(("dtype", "bfloat16"),)
    ),
    "long, top-p": Drawing(SamplingSettings(160, 0.7, top_p=0.95), samples=8, rounds=3),
}


class Offence(NamedTuple):
    """A sample that must not be, with all that is needed to look at it."""

    faults: list[str]
    text: str
    actions: list[str]
    page: str


@dataclasses.dataclass
class Judged:
    """What the judges found in some samples.

    Attributes:
      samples: by what they begin with, or `answer`.
      cited: answers with a citation.
      marked: quotes by their start and end.
      full: with as many tokens as there may be.
      offences: those with a fault.
    """

    samples: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    cited: int = 0
    marked: int = 0
    full: int = 0
    offences: list[Offence] = dataclasses.field(default_factory=list)


class _Engine:
    """Finds all pages for nearly every query."""

    def __init__(self, hits: list[Hit]) -> None:
        self._hits = hits

    def search(self, query: str, k: int) -> list[Hit]:
        if len(query) % 9 == 8:
            raise SearchError("the engine is asleep")
        first = len(query) % len(self._hits)
        return (self._hits[first:] + self._hits[:first])[: min(k, len(query) % 7)]


def world_of(kind: page_kinds.Kind, rng: random.Random) -> SiteWorld:
    """A world of a kind's pages, with links anywhere; some lead nowhere, or to a blocked site."""
    texts: list[tuple[str, str]] = []
    for pages in kind(rng):
        texts += [(each.title, each.text[:LONGEST_PAGE]) for each in pages]
        if len(texts) >= 6:
            break
    addresses = [f"http://h{place % 3}.example/{place}" for place in range(len(texts))]
    targets = [*addresses, "http://gone.example/x", "https://www.reddit.com/r/x"]
    pages = []
    for address, (title, text) in zip(addresses, texts, strict=True):
        document = Document(address, title, text, address)
        count = rng.choice([0, 1, 3, 12, 120])
        cuts = sorted(rng.choices(range(len(document.text) + 1), k=2 * count))
        links = [
            Link(start, end, rng.choice(targets))
            for start, end in zip(cuts[::2], cuts[1::2], strict=True)
        ]
        pages.append(Page(document, tuple(links)))
    hits = [Hit(target, f"About {target}", "A page.") for target in targets]
    return SiteWorld("made", pages, _Engine(hits))


class CommandDrawer:
    """Draws and judges what is written with one vocabulary, in one way.

    Args:
      tokenizer: a SentencePiece model or a `tokenizer.json`.
      drawing: how.
      sizes: of a batch's tables, where they are large enough.
      damage: what is done to the tables on their way to the sampler; only to show that the judges
        see it.
    """

    def __init__(
        self,
        tokenizer: pathlib.Path,
        drawing: Drawing,
        sizes: TableSizes = LEAST,
        damage: Callable[[QuoteTables], QuoteTables] = lambda tables: tables,
    ) -> None:
        self._drawing, self._damage, self._sizes = drawing, damage, sizes
        self._spelling = tokenizer_files.read(tokenizer)
        self._vocabulary = load_vocabulary(tokenizer)
        self._constraints: dict[tuple[Boundaries, bool], CommandConstraint] = {}
        rows = -(-self._vocabulary.size // 64) * 64  # some to spare, which are never drawn
        config = dataclasses.replace(CONFIG, vocab_size=rows, **dict(drawing.model))
        self._transformer = Transformer(config)
        ids = range(self._spelling.size)
        spelled = [b"" if id in self._spelling.silent else self._spelling.of([id]) for id in ids]
        held: dict[str, Callable[[bytes], bool]] = {
            "citation": lambda piece: b"[" in piece,
            "mark": lambda piece: bool(piece) and piece in "━".encode(),
            "word": lambda piece: piece.strip().isalpha(),
            "quote": lambda piece: piece.strip()[:1] == b"Q",
            "click": lambda piece: piece.strip()[:1] == b"C",
        }
        self._held = {
            name: np.array([holds(piece) for piece in spelled]) for name, holds in held.items()
        }

    def judge_batch(self, kind: page_kinds.Kind, seed: int) -> Judged:
        """Draws the samples of a batch and judges each.

        Args:
          kind: makes the pages.
          seed: of the pages, of the rules, of the model, of what it prefers and of the draws.
        """
        rng = random.Random(seed)
        world = world_of(kind, rng)
        constraint = self._constraint(
            rng.choice(["words", "words", "characters", "sentences"]), rng.random() < 0.3
        )
        states = [self._begun(rng, place) for place in range(self._drawing.episodes)]
        key = jax.random.key(seed)
        params = biased_parameters(self._transformer, key, self._bias(rng))
        judged = Judged()
        for turn in range(self._drawing.rounds):
            drawn = self._draw(world, constraint, states, params, jax.random.fold_in(key, turn))
            for place, (state, rows) in enumerate(zip(states, drawn, strict=True)):
                afters: dict[str, State] = {}
                for tokens, length in rows:
                    after = self._judge(judged, world, constraint, state, tokens, length)
                    if after is not None:
                        afters.setdefault(_name(state, after), after)
                if afters:
                    states[place] = afters[_next(rng, state, sorted(afters))]
                if states[place].done:
                    states[place] = self._begun(rng, place)
        return judged

    def _constraint(self, boundaries: Boundaries, present: bool) -> CommandConstraint:
        if (boundaries, present) not in self._constraints:
            settings = CommandSettings(boundaries, present, page_characters=4000, sizes=self._sizes)
            self._constraints[boundaries, present] = CommandConstraint(
                self._vocabulary, self._drawing.sampling.max_tokens, settings
            )
        return self._constraints[boundaries, present]

    def _begun(self, rng: random.Random, place: int) -> State:
        settings = Settings(
            actions=rng.choice([5, 30]),
            reference_characters=rng.choice([20, 300, 4000]),
            view_lines=rng.choice([3, 40]),
            results=rng.choice([1, 10]),
            absent_text_is_invalid=rng.random() < 0.3,
        )
        return reset(f"What is {place}?", settings)

    def _bias(self, rng: random.Random) -> np.ndarray:
        choices = {"citation": [0, 4, 8], "mark": [0, 6, 10], "word": [0, 0, -3]}
        choices |= {"quote": [0, 5, 9], "click": [0, 3, 5]}
        strengths = {name: rng.choice(some) for name, some in choices.items()}
        whole = np.zeros(self._transformer.config.vocab_size, np.float32)
        whole[: self._spelling.size] = sum(
            strength * self._held[name] for name, strength in strengths.items()
        )
        whole[self._vocabulary.eos_id] = rng.choice([-6, -2, 2, 5])
        return whole

    def _draw(
        self,
        world: SiteWorld,
        constraint: CommandConstraint,
        states: Sequence[State],
        params: Any,
        key: jax.Array,
    ) -> list[list[tuple[list[int], int]]]:
        drawing, vocabulary = self._drawing, self._vocabulary
        graphs = [constraint.graph(page_of(world, state), state) for state in states]
        host = self._damage(constraint.host_tables(graphs))
        made = sample(
            self._transformer,
            params,
            [vocabulary.encode(prompt(state))[-PROMPT_TOKENS:] for state in states],
            key,
            drawing.sampling,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            quotes=jax.tree.map(jnp.asarray, host),
            samples_per_prompt=drawing.samples,
            rows_per_prompt=drawing.rows,
            vocabulary_size=vocabulary.size,
            other_eos_ids=vocabulary.other_eos_ids,
        )
        rows = list(zip(made.tokens.tolist(), made.lengths.tolist(), strict=True))
        each = drawing.samples
        return [rows[first : first + each] for first in range(0, len(rows), each)]

    def _judge(
        self,
        judged: Judged,
        world: SiteWorld,
        constraint: CommandConstraint,
        state: State,
        tokens: list[int],
        length: int,
    ) -> State | None:
        """Counts a sample; returns the state after it, where it is right."""
        most = constraint.max_tokens
        row = answer_judge.Sampled(
            tokens,
            length,
            self._vocabulary.eos_id,
            self._vocabulary.pad_id,
            self._spelling.silent,
            self._spelling.size,
        )
        found = answer_judge.faults_of_row(row, answer_judge.Rules(most))
        ids = [id for id in tokens[: max(0, length - 1)] if id not in self._spelling.silent]
        text = self._spelling.of(ids).decode("utf-8", errors="replace")
        if "\ufffd" in text and self._spelling.of(ids) != text.encode():
            found.append("no UTF-8")
        if text != self._spelling.decoded(ids):
            found.append("the tokenizer's library says something else")
        after, _, invalid = step(world, state, text)
        if invalid is not None:
            found.append(f"invalid: {invalid}")
        elif state.phase == "browsing" and after.actions[-1].text != normalise_text(text):
            found.append(f"logged as {after.actions[-1].text!r}")
        page = page_of(world, state)
        if state.phase == "answering":
            found += browsing_judge.faults_of_answer(text, len(state.references))
        else:
            present = constraint.settings.find_present or state.settings.absent_text_is_invalid
            plain = Document("", "", page.shown(state.settings).plain)
            runs = shown_pages.shown(plain, constraint.settings.boundaries)
            found += browsing_judge.faults_of_command(text, runs, present)
        judged.samples[_name(state, after)] += 1
        judged.full += length == most
        judged.marked += "━" in text and after.references != state.references
        judged.cited += state.phase == "answering" and "[" in text
        if found:
            texts = [action.text for action in state.actions]
            judged.offences.append(Offence(found, text, texts, page.document.text))
            return None
        return after


def _next(rng: random.Random, state: State, names: list[str]) -> str:
    """Which kind of action an episode goes on with: to pages, and to an end with references."""
    weights = {"Clicked": 4.0, "Quote:": 4.0, "End:": 2.0 if state.references else 0.05}
    return rng.choices(names, [weights.get(name, 1.0) for name in names])[0]


def _name(before: State, after: State) -> str:
    """What kind of text led from one state to another."""
    if before.phase == "answering":
        return "answer"
    first = after.actions[-1].text.split()
    return first[0] if first and first[0] in _WORDS else "?"
