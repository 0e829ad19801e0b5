"""Two processes that read one model check it together: each tensor once, damage known to both."""

import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import jax

from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import train_sentencepiece
from tests.drawn_parameters import drawn_parameters

SCRIPT = pathlib.Path(__file__).with_name("read_together.py")
CONFIG = TransformerConfig(
    vocab_size=384, d_model=16, num_layers=2, num_heads=2, head_dim=8, d_ff=32, position="rope"
)


def both(*folders: pathlib.Path) -> Iterator[list[list[str]]]:
    """For each model, what two processes write that read it together."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    outputs = [folders[0].with_name(f"{number}.txt") for number in (0, 1)]
    pair = [
        subprocess.Popen([sys.executable, SCRIPT, str(number), str(port), output, *folders])
        for number, output in enumerate(outputs)
    ]
    assert [process.wait(timeout=600) for process in pair] == [0, 0]
    lines = [iter(output.read_text().splitlines()) for output in outputs]
    for _ in folders:
        yield [list(until_the_end(each)) for each in lines]
    assert not any(map(list, lines))


def until_the_end(lines: Iterator[str]) -> Iterator[str]:
    """The lines of one model."""
    for line in lines:
        yield line
        if not line.startswith("checks"):
            return


def test_each_tensor_is_checked_once_and_damage_refused_by_both(tmp_path: pathlib.Path) -> None:
    transformer = Transformer(CONFIG)
    texts = [f"The town of Aldgate number {i} lies on the river Orm." for i in range(200)]
    params = drawn_parameters(transformer)
    whole, damaged = tmp_path / "model", tmp_path / "damaged"
    save_model(whole, Model(transformer, params, train_sentencepiece(texts, 384), {}))
    shutil.copytree(whole, damaged)
    path = damaged / "parameters.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    read, refused = both(whole, damaged)

    assert all(lines[-1].startswith("read") for lines in read)
    first, second = (
        {line.split()[1] for line in lines if line.startswith("checks")} for lines in read
    )
    assert not first & second
    assert len(first | second) == len(jax.tree.leaves(params))

    assert all(lines[-1].startswith("refused") for lines in refused)
    assert sorted("its bytes hash to" in lines[-1] for lines in refused) == [False, True]
