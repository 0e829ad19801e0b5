"""Two processes that read one model check it together: each tensor once, damage known to both."""

import pathlib
import socket
import subprocess
import sys

import jax

from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import train_sentencepiece

SCRIPT = pathlib.Path(__file__).with_name("read_together.py")
CONFIG = TransformerConfig(
    vocab_size=384, d_model=16, num_layers=2, num_heads=2, head_dim=8, d_ff=32, position="rope"
)


def both(folder: pathlib.Path) -> list[list[str]]:
    """What two processes write that read it together."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    outputs = [folder.with_name(f"{number}.txt") for number in (0, 1)]
    pair = [
        subprocess.Popen([sys.executable, SCRIPT, folder, str(number), str(port), output])
        for number, output in enumerate(outputs)
    ]
    assert [process.wait(timeout=600) for process in pair] == [0, 0]
    return [output.read_text().splitlines() for output in outputs]


def test_each_tensor_is_checked_once_and_damage_refused_by_both(tmp_path: pathlib.Path) -> None:
    transformer = Transformer(CONFIG)
    texts = [f"The town of Aldgate number {i} lies on the river Orm." for i in range(200)]
    params = jax.jit(transformer.init)(jax.random.key(0))
    save_model(tmp_path / "model", Model(transformer, params, train_sentencepiece(texts, 384), {}))
    first, second = (
        {line.split()[1] for line in lines if line.startswith("checks")}
        for lines in both(tmp_path / "model")
    )
    assert not first & second
    assert len(first | second) == len(jax.tree.leaves(params))

    path = tmp_path / "model" / "parameters.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    refused = [lines[-1] for lines in both(tmp_path / "model")]
    assert all(line.startswith("refused") for line in refused)
    assert sorted("its bytes hash to" in line for line in refused) == [False, True]
