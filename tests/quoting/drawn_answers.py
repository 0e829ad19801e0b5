"""Answers that the real sampler draws under the constraint, judged by `answer_judge`.

A model with random weights draws them. Nothing but its parameters says what it prefers: one channel
of the stream that it reads out is always 1, so that a row of the unembedding is a bias of each
token. By it the model ends claims and quotes early in some batches and hardly ever in others.
"""

import contextlib
import dataclasses
import itertools
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.decoding.rerank import sample_in_turn
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.prompts import encode_prompt
from gophercite.quoting.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.table_sizes import LEAST, TableSizes
from gophercite.vocabularies import load_vocabulary
from tests.drawn_parameters import drawn_parameters
from tests.quoting import answer_judge, page_kinds, shown_pages, tokenizer_files

Sources = page_kinds.Sources

PROMPT_TOKENS = 64  # the last of a prompt, which are all that the model reads
SHOWN_CHARACTERS = 200  # of each page, in the prompt that those are of


@dataclasses.dataclass(frozen=True)
class Setting:
    """How answers are drawn; all batches of one setting and vocabulary have one program.

    Attributes:
      sampling: the sampler's settings.
      quotes: the constraint's.
      prompts: of a batch.
      samples: of each prompt, at most.
      rows: samples of a prompt in flight; all when None.
      slots: prompts in flight; all when None.
      tight: how many of the prompts can be answered in just as many tokens as there are, or in one
        or two less.
      varied: prompts have different numbers of samples, some none.
      asked: by `sample_in_turn`, as `ask` and `infer` do, each prompt a question of its own.
      mesh: over eight devices.
      branches: their numbers, as for one prompt on a CPU; needs all `rows` and `slots`.
      model: what is not the default of `CONFIG`.
    """

    sampling: SamplingSettings
    quotes: QuoteSettings = dataclasses.field(default_factory=QuoteSettings)
    prompts: int = 8
    samples: int = 32
    rows: int | None = None
    slots: int | None = None
    tight: int = 2
    varied: bool = False
    asked: bool = False
    mesh: bool = False
    branches: tuple[int, ...] = ()
    model: tuple[tuple[str, Any], ...] = ()

    @property
    def rules(self) -> answer_judge.Rules:
        """What the judge holds answers to."""
        quotes = self.quotes
        return answer_judge.Rules(
            self.sampling.max_tokens,
            quotes.minimum_quote,
            quotes.maximum_quote,
            quotes.minimum_claim,
            quotes.maximum_claim,
            quotes.maximum_triples,
            quotes.maximum_omissions,
        )


KERNEL = (("scan_layers", False), ("head_dim", 16))
SETTINGS = {
    "defaults, as `ask` samples": Setting(SamplingSettings(), asked=True),
    "rows refilled, prompts wait": Setting(
        SamplingSettings(96, free_log_probs=False), rows=10, slots=4, varied=True, model=KERNEL
    ),
    "omissions, three triples": Setting(
        SamplingSettings(128),
        QuoteSettings(minimum_quote=3, maximum_triples=3, maximum_omissions=2),
        rows=16,
        model=(("position", "transformer_xl"),),
    ),
    "limits of length, top-p, bfloat16": Setting(
        SamplingSettings(128, 0.7, top_p=0.95),
        QuoteSettings(5, 30, minimum_claim=8, maximum_claim=25, maximum_triples=2),
        model=(("dtype", "bfloat16"), *KERNEL),
    ),
    "hardly any tokens, top-k": Setting(
        SamplingSettings(40, 2.0, top_k=5), tight=7, rows=16, slots=4
    ),
    "greedy with omissions, bfloat16": Setting(
        SamplingSettings(96, 0.0),
        QuoteSettings(maximum_omissions=1),
        samples=4,
        tight=3,
        model=(("dtype", "bfloat16"),),
    ),
    "samples that begin alike are read once": Setting(
        SamplingSettings(96, 0.5),
        QuoteSettings(maximum_triples=2, maximum_omissions=1),
        samples=16,
        varied=True,
        branches=(2, 6, 16),
        model=KERNEL,
    ),
    "eight devices, prompts wait": Setting(
        SamplingSettings(64),
        QuoteSettings(maximum_triples=2),
        prompts=8,
        samples=12,
        rows=4,
        slots=4,
        varied=True,
        mesh=True,
    ),
}

CONFIG = TransformerConfig(
    vocab_size=1, d_model=16, num_layers=1, num_heads=2, head_dim=8, d_ff=32, norm="layer",
    tied_embeddings=False, position="rope", dtype="float32",
)  # fmt: skip


class Offence(NamedTuple):
    """A sample that must not be, with all that is needed to look at it."""

    faults: list[str]
    tokens: list[int]
    length: int
    text: str
    pages: list[tuple[str, str]]


@dataclasses.dataclass
class Judged:
    """What the judge found in some samples.

    Attributes:
      samples: how many there are.
      full: of these, with as many tokens as there may be.
      several: with more than one triple.
      joined: with quotes that leave words out.
      offences: those with a fault.
    """

    samples: int = 0
    full: int = 0
    several: int = 0
    joined: int = 0
    offences: list[Offence] = dataclasses.field(default_factory=list)


class AnswerDrawer:
    """Draws and judges answers with one vocabulary and setting.

    Args:
      tokenizer: a SentencePiece model or a `tokenizer.json`.
      setting: how answers are drawn.
      sizes: of a batch's tables, where they are large enough.
      damage: what is done to the tables on their way to the sampler; only to show that the judge
        sees it.
    """

    def __init__(
        self,
        tokenizer: pathlib.Path,
        setting: Setting,
        sizes: TableSizes = LEAST,
        damage: Callable[[QuoteTables], QuoteTables] = lambda tables: tables,
    ) -> None:
        self.setting = setting
        self._sizes = sizes
        self._damage = damage
        self.spelling = tokenizer_files.read(tokenizer)
        self._vocabulary = load_vocabulary(tokenizer)
        self._constraint = QuoteConstraint(self._vocabulary, setting.quotes)
        rows = -(-self._vocabulary.size // 64) * 64  # some to spare, which are never drawn
        config = dataclasses.replace(CONFIG, vocab_size=rows, **dict(setting.model))
        self._transformer = Transformer(config)
        self._partitioner = (
            Partitioner(make_mesh(data=2, fsdp=2, model=2)) if setting.mesh else None
        )
        spelled = [
            b"" if id in self.spelling.silent else self.spelling.of([id])
            for id in range(self.spelling.size)
        ]
        self._held = {
            name: np.array([bool(set(characters) & set(piece)) for piece in spelled])
            for name, characters in (("claim", b">%("), ("quote", b"]"), ("omission", b"["))
        }

    def judge_batch(self, kind: page_kinds.Kind, seed: int) -> Judged:
        """Draws the samples of a batch and judges each.

        Args:
          kind: makes the pages; prompts from whose pages nothing can be quoted are passed over.
          seed: of the pages, of the model, of what it prefers and of the draws.
        """
        rng = random.Random(seed)
        shown: list[Sources] = []
        graphs: list[PromptGraph] = []
        for pages in kind(rng):
            with contextlib.suppress(NoLegalAnswer):
                tight = len(shown) >= self.setting.prompts - self.setting.tight
                found = self._tight(pages, rng) if tight else (pages, self._constraint.graph(pages))
                if found[1].shortest_answer > self.setting.sampling.max_tokens:
                    found = self._tight(pages, rng)
                shown.append(found[0])
                graphs.append(found[1])
            if len(shown) == self.setting.prompts:
                break
        counts = self._counts(rng)
        rows = self._draw(shown, self._tables(graphs), counts, seed, rng)
        judged = Judged()
        for place, of_prompt in enumerate(rows):
            assert len(of_prompt) == counts[place]
            plain = [
                shown_pages.shown(page, self.setting.quotes.boundaries) for page in shown[place]
            ]
            for tokens, length in of_prompt:
                self._judge(judged, tokens, length, plain)
        return judged

    def _judge(
        self, judged: Judged, tokens: list[int], length: int, pages: list[answer_judge.Page]
    ) -> None:
        row = answer_judge.Sampled(
            tokens,
            length,
            self._vocabulary.eos_id,
            self._vocabulary.pad_id,
            self.spelling.silent,
            self.spelling.size,
        )
        answer = [id for id in tokens[: max(0, length - 1)] if id not in self.spelling.silent]
        spelled, decoded = self.spelling.of(answer), self.spelling.decoded(answer)
        found = answer_judge.faults(row, spelled, decoded, pages, self.setting.rules)
        judged.samples += 1
        judged.full += length == self.setting.sampling.max_tokens
        judged.several += decoded.count("%<") > 1
        judged.joined += self.setting.quotes.maximum_omissions > 0 and " [...] " in decoded
        if found:
            texts = [(page.title, page.text) for page in pages]
            judged.offences.append(Offence(found, tokens, length, decoded, texts))

    def _tight(self, pages: Sources, rng: random.Random) -> tuple[Sources, PromptGraph]:
        """The beginning of a page, with a title so long that hardly any token is left over."""
        most = self.setting.sampling.max_tokens
        for page in rng.sample(list(pages), len(pages)):
            start = rng.randrange(max(1, len(page.text) - 50))
            text = page.text[start : start + 300]
            title = "".join(rng.choice("abcdefgh ijklmnop") for _ in range(most))

            def graph(length: int, text: str = text, title: str = title) -> Any:
                document = Document("tight", title[:length], text)
                with contextlib.suppress(NoLegalAnswer):
                    return [document], self._constraint.graph([document])
                return None

            low, high = 0, most
            best = graph(0)
            if best is None or best[1].shortest_answer > most:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                tried = graph(middle)
                if tried is not None and tried[1].shortest_answer <= most:
                    low, best = middle, tried
                else:
                    high = middle
            return best
        raise NoLegalAnswer("none of the pages has a legal answer of so few tokens")

    def _counts(self, rng: random.Random) -> list[int]:
        most, prompts = self.setting.samples, self.setting.prompts
        if not self.setting.varied:
            return [most] * prompts
        others = [rng.choice([most, most, most, most // 2, 1, 0]) for _ in range(prompts - 1)]
        return [most, *others]

    def _tables(self, graphs: Sequence[PromptGraph]) -> QuoteTables:
        host = self._constraint.host_tables(graphs, self.setting.sampling.max_tokens, self._sizes)
        return jax.tree.map(jnp.asarray, self._damage(host))

    def _draw(
        self,
        shown: Sequence[Sources],
        quotes: QuoteTables,
        counts: list[int],
        seed: int,
        rng: random.Random,
    ) -> list[list[tuple[list[int], int]]]:
        """Each prompt's samples: rows of tokens, and their lengths."""
        setting, vocabulary = self.setting, self._vocabulary
        prompts = [self._prompt(pages) for pages in shown]
        key = jax.random.key(seed)
        params = self._parameters(key, rng)
        keys = jax.random.split(jax.random.fold_in(key, 1), len(prompts))
        if setting.asked:
            model = Model(self._transformer, params, vocabulary, {})
            drawn = sample_in_turn(
                model, [[prompt] for prompt in prompts], setting.samples, keys, setting.sampling,
                quotes,
            )  # fmt: skip
            return [[(list(each.tokens), len(each.tokens)) for each in one] for one in drawn]
        around: Any = contextlib.nullcontext()
        if self._partitioner is not None:
            shardings = self._partitioner.shardings(self._transformer.logical_axes(), params)
            params, around = jax.device_put(params, shardings), self._partitioner.activate()
        with around:
            made = sample(
                self._transformer,
                params,
                prompts,
                keys,
                setting.sampling,
                eos_id=vocabulary.eos_id,
                pad_id=vocabulary.pad_id,
                quotes=quotes,
                samples_per_prompt=counts,
                rows_per_prompt=setting.rows,
                prompts_in_flight=setting.slots,
                vocabulary_size=vocabulary.size,
                other_eos_ids=vocabulary.other_eos_ids,
                branches=setting.branches,
            )
        rows = list(zip(made.tokens.tolist(), made.lengths.tolist(), strict=True))
        ends = np.cumsum([0, *counts])
        return [rows[begin:end] for begin, end in itertools.pairwise(ends)]

    def _prompt(self, pages: Sources) -> list[int]:
        beginnings = [Document("shown", page.title, page.text[:SHOWN_CHARACTERS]) for page in pages]
        return encode_prompt(self._vocabulary, "What is it?", beginnings)[-PROMPT_TOKENS:]

    def _parameters(self, key: jax.Array, rng: random.Random) -> Any:
        """Random weights, with a bias for tokens by the marks' characters that they hold."""
        strengths = {
            "claim": rng.choice([0, 6, 9, 12]),
            "quote": rng.choice([-8, -4, -2, 0, 3]),
            "omission": rng.choice([0, 0, 4]),
        }
        bias = sum(strength * self._held[name] for name, strength in strengths.items())
        whole = np.zeros(self._transformer.config.vocab_size, np.float32)
        whole[: self.spelling.size] = bias
        whole[self._vocabulary.eos_id] = rng.choice([-4, 0, 2])
        return biased_parameters(self._transformer, key, whole)


def biased_parameters(transformer: Transformer, key: jax.Array, bias: np.ndarray) -> Any:
    """Random weights, and what is added to the logit of each token."""
    seed = int(np.asarray(jax.random.key_data(key))[-1])
    params = jax.device_get(drawn_parameters(transformer, seed))
    scale, added = np.array(params["final_norm"]["scale"]), np.zeros(transformer.config.d_model)
    kernel = 1.5 * params["unembed"]["kernel"]
    scale[0], added[0], kernel[0] = 0.0, 1.0, bias
    return jax.device_put(
        params
        | {
            "final_norm": {"scale": scale, "bias": added.astype(scale.dtype)},
            "unembed": {"kernel": kernel},
        }
    )
