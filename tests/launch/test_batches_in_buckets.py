"""Batches that read and write a bucket which fails: each answer once, whatever ends them."""

import json
import pathlib
import runpy
import types
from collections.abc import Iterator

import jax
import pytest
from google_storage import BUCKET, Storage, google_storage
from storage_faults import Faults, Rule
from vocabulary_fixtures import trained

from gophercite import records
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records import Question
from tests.drawn_parameters import drawn_parameters

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"
PAGES = [
    Document(f"p{n}", f"Mill {n}", f"The mill number {n} burned in 18{n:02}. It had 14 wheels.")
    for n in range(6)
]
QUESTIONS = [
    Question(f"q{n}", f"When did mill {n} burn?", "test", (page,), (f"18{n:02}",))
    for n, page in enumerate(PAGES)
]
FAULTS = Faults(slow=0.05)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    compiled = tmp_path_factory.mktemp("compiled")
    before = (
        jax.config.jax_compilation_cache_dir,
        jax.config.jax_persistent_cache_min_compile_time_secs,
    )

    async def at_once(seconds: float) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch, google_storage(FAULTS) as found:
        # The same programs are asked for again and again; `conftest.py` turns the cache off.
        jax.config.update("jax_compilation_cache_dir", str(compiled))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        patch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=at_once))
        transformer = Transformer(
            TransformerConfig(
                vocab_size=trained().size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
                position="rope", dtype="float32",
            )
        )  # fmt: skip
        params = drawn_parameters(transformer)
        save_model(f"{BUCKET}/tiny", Model(transformer, params, trained(), {"id": "tiny"}))
        records.write(f"{BUCKET}/questions.jsonl.gz", QUESTIONS)
        yield found
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def run(script: str, output: object, *more: str) -> int:
    flags = {
        "--model": f"{BUCKET}/tiny",
        "--questions": f"{BUCKET}/questions.jsonl.gz",
        "--samples": 1,
        "--max-tokens": 12,
        "--batch-size": 2,
        "--output": output,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    status: int = runpy.run_path(str(LAUNCH / script))["main"]([*words, *more])
    return status


def parts(storage: Storage, prefix: str) -> list[str]:
    """The questions whose answers are in objects of their own, in the order of those."""
    names = sorted(n for n in storage.names() if n.startswith(prefix) and ".parts/" in n)
    lines = b"".join(storage.read(name) for name in names).splitlines()
    return [json.loads(line)["question_id"] for line in lines]


def test_answers_that_a_bucket_cut_off_are_gone_on_with_and_each_is_written_once(
    storage: Storage, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("infer.py", tmp_path / "answers.jsonl", "--prompt-tokens", "200") == 0
    whole = (tmp_path / "answers.jsonl").read_bytes()
    output = f"{BUCKET}/out/answers.jsonl"
    FAULTS.rules = [
        Rule("lost", "POST", times=3),
        Rule("429", "POST", times=2),
        Rule("cut inside", "GET", times=3),
        Rule("403", "POST", "00000003"),  # the fourth addition, and nobody tries it again
    ]
    capsys.readouterr()
    assert run("infer.py", output, "--prompt-tokens", "200") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"infer: {output}.parts/00000003.jsonl: the bucket can't be used: ")
    assert parts(storage, "out/answers") == ["q0", "q1", "q2"]
    assert "out/answers.jsonl" not in storage.names()
    FAULTS.rules = [Rule("lost", "POST", times=2), Rule("503", times=3)]
    assert run("infer.py", output, "--prompt-tokens", "200") == 0
    assert "6 questions, 3 already answered" in capsys.readouterr().err
    assert parts(storage, "out/answers") == [question.id for question in QUESTIONS]
    assert storage.read("out/answers.jsonl") == whole


def test_an_evaluation_and_its_report_are_in_a_bucket_what_they_are_on_a_disk(
    storage: Storage, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("eval.py", tmp_path / "test") == 0
    FAULTS.rules = [Rule("403", "POST", "00000002")]
    assert run("eval.py", f"{BUCKET}/report/test") == 1
    assert "the bucket can't be used" in capsys.readouterr().err.splitlines()[-1]
    FAULTS.rules = [Rule("lost", "POST", times=4), Rule("cut before", times=2)]
    assert run("eval.py", f"{BUCKET}/report/test") == 0
    assert sorted(parts(storage, "report/test.answers")) == [each.id for each in QUESTIONS]
    for path in tmp_path.glob("test*"):
        if path.is_file():
            assert storage.read(f"report/{path.name}") == path.read_bytes(), path.name
