"""Exports adapters without their model, as folders that Hugging Face's PEFT loads.

    adapter_config.json        the adapted modules, rank and alpha
    adapter_model.safetensors  two tensors per module: lora_A [rank, in], lora_B [out, rank]
    gophercite.json            the digest of the base's parameters, which our own merge checks
    prompt.json                the form of the prompts, if it is not the base model's

A reward model becomes a sequence classifier with one label, whose score is the reward. Its other
head, which published families lack, has a file of its own:

    supported_and_plausible.safetensors  kernel [d_model], bias [1]

If a family has queries, keys and values in one matrix, their adapters become a single one whose
rank is the sum of theirs: the A's are stacked, and each B writes only to its own outputs.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy
from etils import epath

from gophercite.model_folders.adapted import find_adapters
from gophercite.model_folders.checkpoint_files import PARAMETERS, read_parameters
from gophercite.model_folders.description import model_digest, read_base, read_description
from gophercite.model_folders.folder import read_vocabulary
from gophercite.model_folders.folder_contents import best_checkpoint
from gophercite.models.lora import LoRA
from gophercite.models.parameters import ADAPTERS, HEADS, Params
from gophercite.models.reward_model import REWARD, SUPPORTED_AND_PLAUSIBLE, RewardModel
from gophercite.models.transformer import Transformer
from gophercite.storage import whole_folder
from gophercite.vocabularies.prompt_form import PromptForm
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.export import Exported
from gophercite.weights.importing import Dtype
from gophercite.weights.model_types import write_architecture
from gophercite.weights.names import LAYERS, NAMES, Place
from gophercite.weights.peft_import import CONFIG, MADE_FOR, SCORE, SECOND_HEAD, TENSORS
from gophercite.weights.peft_join import Pair, base_of, join_adapters

_WRAPPED = "base_model.model."  # PEFT's prefix for the wrapped model

Adapter = Mapping[str, np.ndarray]
Heads = Mapping[str, Mapping[str, np.ndarray]]


class _Module(NamedTuple):
    """One of the family's modules, whose matrix contains some of ours.

    Attributes:
      tensor: the matrix's name, with `{}` for the layer's number.
      places: the places of our matrices in it, by name.
    """

    tensor: str
    places: dict[str, Place]

    @property
    def name(self) -> str:
        """The module's name within a layer: "self_attn.q_proj"."""
        return self.tensor.split("{}.")[1].removesuffix(".weight")


def export_adapters(
    run: epath.PathLike,
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
    base: str | None = None,
    after: str | os.PathLike[str] | None = None,
) -> Exported:
    """Exports the adapters of a training run's best checkpoint as a PEFT folder, atomically.

    Args:
      run: the run's folder.
      folder: a new or empty folder.
      dtype: dtype of the tensors; by default float32, like the adapters.
      base: the base model as PEFT should load it: the path of its exported folder, or its name on a
        hub.
      after: adapters in PEFT's form that had been merged into the run's base model. Both become
        adapters of the base that these were trained on; the rank is the sum of both.

    Returns:
      A summary of the export, which counts the adapters' parameters.

    Raises:
      WeightsError: the run has no adapters, no published family supports the architecture or a
        matrix, the folder is not empty, or `after` was not merged into the run's base.
      ModelFolderError, CheckpointError: the run or its base model is not usable.
    """
    root, target = epath.Path(run), pathlib.Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WeightsError(f"{target}: exists; export into a new or empty folder")
    description = read_description(root)
    if description.base is None:
        raise WeightsError(f"{root}: has no adapters: it holds a whole model")
    try:
        fields = write_architecture(description.config)
    except ValueError as error:
        raise WeightsError(f"{root}: {error}") from error
    base_model = read_base(root, description)
    transformer = Transformer(description.config)
    abstract = transformer.abstract()
    if any(name.startswith(f"{PARAMETERS}{HEADS}/") for name in best_checkpoint(root).arrays):
        abstract |= {HEADS: RewardModel(transformer).abstract_heads()}
    digest = model_digest(description.base)
    adapted = find_adapters(root, abstract, description.base, digest)
    modules = _modules(adapted.lora, NAMES[fields["model_type"]].places)
    adapters, heads = _read(root, adapted.step, adapted.shapes)
    chosen, layers = np.dtype(dtype or "float32"), description.config.num_layers
    pairs, lora = _pairs(modules, adapters, layers, description.config.num_heads), adapted.lora
    if after is not None:
        pairs = join_adapters(after, base_model.provenance, pairs, lora.scale)
        lora, digest = _of_rank(lora, modules, pairs, after), base_of(after)
    tensors = {
        f"{_WRAPPED}{module}.lora_{part}.weight": np.ascontiguousarray(matrix, chosen)
        for module, pair in pairs.items()
        for part, matrix in zip("AB", pair, strict=True)
    }
    first = layers - len(adapters[adapted.lora.targets[0]]["a"])
    with whole_folder(target) as unfinished:
        config = _config(modules, lora, list(range(first, layers)), base)
        if heads is not None:
            config |= {"task_type": "SEQ_CLS", "modules_to_save": [SCORE]}
            tensors[f"{_WRAPPED}{SCORE}.weight"] = heads[REWARD]["kernel"][None]
            second = dict(heads[SUPPORTED_AND_PLAUSIBLE])
            safetensors.numpy.save_file(second, unfinished / SECOND_HEAD)
        safetensors.numpy.save_file(tensors, unfinished / TENSORS, {"format": "pt"})
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (unfinished / CONFIG).write_text(text, "utf-8")
        made_for = json.dumps({"base_sha256": digest}) + "\n"
        (unfinished / MADE_FOR).write_text(made_for, "utf-8")
        form, of_base = (PromptForm.of(read_vocabulary(it)) for it in (root, description.base))
        if form != of_base:
            form.write(unfinished)
    values = sum(tensor.size for tensor in tensors.values())
    return Exported(fields["model_type"], values, chosen.name, (TENSORS,))


def _modules(lora: LoRA, places: Mapping[str, Place]) -> list[_Module]:
    """The family's modules that hold the adapted matrices."""
    modules: dict[str, _Module] = {}
    for name in lora.targets:
        place = places[LAYERS + name]
        module = modules.setdefault(place.tensor, _Module(place.tensor, {}))
        module.places[name] = place
    return list(modules.values())


def _read(root: epath.Path, step: int, shapes: Params) -> tuple[dict[str, Adapter], Heads | None]:
    """A checkpoint's adapters and a reward model's heads, in host memory; heads in float32."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    read = read_parameters(root, step, jax.tree.map(lambda _: here, shapes))
    found: dict[str, Adapter] = jax.tree.map(np.asarray, read[ADAPTERS])
    if HEADS not in read:
        return found, None
    return found, jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), read[HEADS])


def _pairs(
    modules: list[_Module], adapters: Mapping[str, Adapter], layers: int, heads: int
) -> dict[str, Pair]:
    """PEFT's matrices A and B of each adapted module."""
    pairs = {}
    for module in modules:
        own = [(place, adapters[name]) for name, place in module.places.items()]
        count = len(own[0][1]["a"])
        for index in range(count):
            name = module.tensor.format(layers - count + index).removesuffix(".weight")
            a, b = _fuse([(place, _layer(adapter, index)) for place, adapter in own], heads)
            pairs[name] = a.T, b.T
    return pairs


def _of_rank(
    lora: LoRA,
    modules: list[_Module],
    pairs: Mapping[str, Pair],
    after: str | os.PathLike[str],
) -> LoRA:
    """The settings of adapters of another rank, and of the same scale.

    Raises:
      WeightsError: modules have different ranks; the message names the folder `after`.
    """
    ranks = {
        len(a) / len(module.places)
        for name, (a, _) in pairs.items()
        for module in modules
        if name.endswith(f".{module.name}")
    }
    rank = int(min(ranks))
    if ranks != {rank}:
        raise WeightsError(
            f"{os.fspath(after)}: adapters can only be joined if they have one rank for all modules"
        )
    return dataclasses.replace(lora, rank=rank, alpha=lora.scale * rank)


def _layer(adapter: Adapter, index: int) -> Adapter:
    return {name: stack[index] for name, stack in adapter.items()}


def _fuse(own: list[tuple[Place, Adapter]], heads: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B of one module, [in, rank] and [rank, out], from our matrices' adapters."""
    a = np.concatenate([adapter["a"] for _, adapter in own], axis=1)
    outputs = own[0][1]["b"].shape[1]
    fused = own[0][0].fused
    b = np.zeros((a.shape[1], outputs * (fused.parts if fused else 1)), np.float32)
    row = 0
    for place, adapter in own:
        rank, done = len(adapter["b"]), 0
        for columns in place.fused.columns(outputs, heads) if place.fused else [slice(0, outputs)]:
            size = columns.stop - columns.start
            b[row : row + rank, columns] = adapter["b"][:, done : done + size]
            done += size
        row += rank
    return a, b


def _config(
    modules: list[_Module], lora: LoRA, layers: list[int], base: str | None
) -> dict[str, Any]:
    """`adapter_config.json`; for a module with n adapters, rank and alpha are multiplied by n."""
    several = {module.name: len(module.places) for module in modules if len(module.places) > 1}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        # Linear layers that are [in, out], like GPT-2's.
        "fan_in_fan_out": not next(iter(modules[0].places.values())).transposed,
        "target_modules": [module.name for module in modules],
        "layers_to_transform": layers,
        "rank_pattern": {name: lora.rank * count for name, count in several.items()},
        "alpha_pattern": {name: lora.alpha * count for name, count in several.items()},
        "inference_mode": True,
    }
