"""Sixteen answers to a question, by our sampler and by `transformers`' `generate`.

    launch/smollm2.sh
    python benchmarks/question_answers.py --hugging_face PYTHON
    python benchmarks/question_answers.py --hugging_face PYTHON --questions questions_test.jsonl

Each turn is one question, with its pages in one prompt: questions about examples/notes, or records
with pages (--questions). All sides draw 16 answers (--samples) at temperature 1 until each has
ended or has 128 tokens. Tokens after an answer's end don't count; how many answers need is left to
chance. PYTHON is that of an environment with torch and transformers. Each side is a process of its
own, and they take turns. Ours runs under the quote constraint, as `ask` does, and freely, as
`generate` does; and both also with each answer read by itself (branches = ()).
"""

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from peers import Side, Turn, add_worker_flags, announce, serve, take_turns

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TOKENS = 128  # what `ask` allows this model's answers
NOTES = (
    "Who leads the town council?",
    "Who built the lighthouse?",
    "How long is the river?",
    "When was the lighthouse built?",
    "How high is the lighthouse?",
)


def asked(questions: Path | None, limit: int) -> list[tuple[str, list[Any]]]:
    """Each question, with its pages."""
    from gophercite.answering.pages import read_documents
    from gophercite.documents import Document
    from gophercite.records import Question, read

    if questions is None:
        notes = list(read_documents([str(ROOT / "examples" / "notes")]))
        return [(question, notes) for question in NOTES]
    records = itertools.islice(read(questions, Question), limit)
    return [
        (record.question, [page for page in record.documents if isinstance(page, Document)])
        for record in records
    ]


def ours(
    folder: str,
    prompts: str,
    samples: int,
    questions: str | None,
    limit: int,
    constrained: bool = False,
    precision: str = "float32",
    branches: Any = None,
) -> Turn:
    import os

    os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = precision
    import jax

    from gophercite.decoding.sampler import sample
    from gophercite.decoding.sampling_settings import SamplingSettings
    from gophercite.model_folders.folder import load_model
    from gophercite.quoting.constraint import QuoteConstraint

    model, shown = load_model(Path(folder)), json.loads(Path(prompts).read_text())
    tables: list[Any] = [None] * len(shown)
    if constrained:
        constraint = QuoteConstraint(model.vocabulary)
        pages = [pages for _, pages in asked(Path(questions) if questions else None, limit)]
        tables = [constraint.tables([constraint.graph(each)], TOKENS) for each in pages]
    announce(f"jax {jax.__version__}")

    def turn(number: int) -> dict[str, float]:
        drawn = sample(
            model.transformer,
            model.params,
            [shown[number % len(shown)]],
            jax.random.key(number),
            SamplingSettings(max_tokens=TOKENS),
            eos_id=model.vocabulary.eos_id,
            pad_id=model.vocabulary.pad_id,
            vocabulary_size=model.vocabulary.size,
            other_eos_ids=model.vocabulary.other_eos_ids,
            quotes=tables[number % len(shown)],
            samples_per_prompt=samples,
            branches=branches,
            least_width=max(map(len, shown)),
        )
        lengths = drawn.lengths
        found = {"tokens": lengths.sum(), "longest": lengths.max(), "passes": drawn.passes}
        return {name: float(value) for name, value in found.items()}

    return turn


def torchs(checkpoint: str, prompts: str, samples: int, dtype: str, cache: str, end: int) -> Turn:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=getattr(torch, dtype)
    ).eval()
    shown = json.loads(Path(prompts).read_text())
    announce(f"torch {torch.__version__}, transformers {transformers.__version__}")
    options: dict[str, Any] = {}
    if cache == "static":
        options = {"cache_implementation": "static", "disable_compile": True}

    def turn(number: int) -> dict[str, float]:
        torch.manual_seed(number)
        prompt = torch.tensor([shown[number % len(shown)]])
        with torch.inference_mode():
            made = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                num_return_sequences=samples,
                max_new_tokens=TOKENS,
                eos_token_id=end,
                pad_token_id=end,
                **options,
            )
        answers = made[:, prompt.shape[1] :].numpy()
        ended = np.cumsum(answers == end, axis=1)
        lengths = np.sum(ended == 0, axis=1) + (ended[:, -1] > 0)
        longest = float(lengths.max())
        return {"tokens": float(lengths.sum()), "longest": longest, "passes": longest}

    return turn


SIDES = {"ours": ours, "torchs": torchs}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2-citing")
    parser.add_argument("--hugging_face", metavar="PYTHON")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="records with pages")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10, help="questions, after two that warm up")
    add_worker_flags(parser, SIDES)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    from gophercite.model_folders.folder import read_vocabulary
    from gophercite.prompts import encode_prompt

    vocabulary = read_vocabulary(flags.model)
    with tempfile.TemporaryDirectory() as folder:
        prompts = [
            encode_prompt(vocabulary, question, pages)
            for question, pages in asked(flags.questions, flags.rounds)
        ]
        shown = Path(folder) / "prompts.json"
        shown.write_text(json.dumps(prompts))
        of_all = {"prompts": str(shown), "samples": flags.samples}
        questions = str(flags.questions) if flags.questions else None
        of_ours = {"folder": str(flags.model), "questions": questions, "limit": flags.rounds}
        quoting: dict[str, Any] = {"constrained": True}
        alone: dict[str, Any] = {"branches": []}
        variants = (quoting, quoting | alone, {}, alone, {"precision": "bfloat16"})
        sides = [
            Side(sys.executable, __file__, "ours", of_all | of_ours | variant)
            for variant in variants
        ]
        if flags.hugging_face:
            from gophercite.weights.export import export_weights

            checkpoint = str(Path(folder) / "checkpoint")
            export_weights(flags.model, Path(checkpoint))
            end = {"checkpoint": checkpoint, "end": vocabulary.eos_id}
            for dtype in ("float32", "bfloat16"):
                for cache in ("dynamic", "static"):
                    settings = of_all | end | {"dtype": dtype, "cache": cache}
                    sides.append(Side(flags.hugging_face, __file__, "torchs", settings))
        take_turns(sides, flags.rounds)
        lengths = sorted(map(len, prompts))
        print(f"{flags.rounds} questions, prompts of {lengths[0]} to {lengths[-1]} tokens")
        print("\n| side | seconds a question | passes | tokens | longest | tokens a second | |")
        print("|---|---|---|---|---|---|---|")
        for side in sides:
            seconds, passes, tokens, longest = (
                sum(turn[name] for turn in side.turns)
                for name in ("seconds", "passes", "tokens", "longest")
            )
            told = {"dtype", "cache", "precision", "branches", "constrained"}
            name = [part for part in side.name.split() if part.partition("=")[0] in told]
            print(
                f"| {' '.join([side.name.split()[0], *name])} | {seconds / flags.rounds:.2f} "
                f"| {passes / flags.rounds:.0f} | {tokens:.0f} | {longest / flags.rounds:.0f} "
                f"| {tokens / seconds:.0f} | {side.note} |"
            )
            side.close()


if __name__ == "__main__":
    main()
