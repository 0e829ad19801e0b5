"""Merges adapters in PEFT's format into the model that they were trained on.

    adapter_config.json        the kind of adapters, and their alpha
    adapter_model.safetensors  two tensors per module: lora_A [rank, in], lora_B [out, rank]
    gophercite.json            the digest of the base's parameters; only in our own exports
    prompt.json                the form of the prompts (`vocabularies.prompt_form`), likewise
    calibration.json           labelled answers of the merged model (`answering.declining`), if any

A sequence classifier's score, beside `supported_and_plausible.safetensors`, makes a reward model.

The merged matrix is W + (alpha / rank) A B, computed in float32. Kinds of adapters that compute
something else are refused; the message names the field.
"""

import dataclasses
import hashlib
import math
import os
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from gophercite.model_folders.folder import (
    Description,
    Model,
    load_model,
    model_digest,
    read_description,
    save_model,
)
from gophercite.model_folders.folder_contents import CALIBRATION
from gophercite.model_folders.tensor_files import DTYPES, TensorFile
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import adaptable
from gophercite.models.parameters import HEADS, TRAINED, Params
from gophercite.models.reward_model import REWARD, SUPPORTED_AND_PLAUSIBLE
from gophercite.storage.paths import write_file
from gophercite.vocabularies.prompt_form import read_prompt_form
from gophercite.weights.checkpoint import WeightsError, read_json
from gophercite.weights.model_types import write_architecture
from gophercite.weights.names import LAYERS, NAMES, Place

CONFIG, TENSORS, MADE_FOR = "adapter_config.json", "adapter_model.safetensors", "gophercite.json"
SCORE, SECOND_HEAD = "score", "supported_and_plausible.safetensors"

_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
_SCORE = f"base_model.model.{SCORE}.weight"
_HEADS = ("classifier", SCORE)  # what PEFT saves of any classifier, whether it has both or not
# Fields that don't affect what the tensors compute; the tensors themselves name their modules.
_NEUTRAL = {
    *("task_type", "base_model_name_or_path", "revision", "inference_mode", "peft_version"),
    *("lora_dropout", "fan_in_fan_out", "target_modules", "exclude_modules", "auto_mapping"),
    *("layers_to_transform", "layers_pattern", "rank_pattern", "megatron_core", "eva_config"),
    *("qalora_group_size", "runtime_config"),
}
_READ = {
    *("peft_type", "r", "lora_alpha", "alpha_pattern", "use_rslora", "bias", "init_lora_weights"),
    "modules_to_save",
}
# Other initialisations also change the base model, so that merging into the base would be wrong.
_BEGINNINGS = (None, True, False, "gaussian", "eva", "orthogonal")


class _Own(NamedTuple):
    """One of our matrices in one of the family's modules.

    Attributes:
      name: our matrix's name in its layer.
      layer: the layer's number.
      place: its place in the module's matrix.
    """

    name: str
    layer: int
    place: Place


@dataclasses.dataclass(frozen=True)
class AdapterSettings:
    """The settings in `adapter_config.json` that the tensors don't determine."""

    alpha: float
    alpha_pattern: Mapping[str, float]
    by_root: bool
    is_classifier: bool = False

    def scale(self, module: str, rank: int) -> float:
        """Factor on a module's product."""
        alpha = self.alpha
        for pattern, other in self.alpha_pattern.items():
            if module == pattern or module.endswith(f".{pattern}"):
                alpha = other
                break
        return alpha / (math.sqrt(rank) if self.by_root else rank)


def is_peft(source: str | os.PathLike[str]) -> bool:
    """Whether a folder holds adapters in PEFT's format."""
    return (pathlib.Path(source) / CONFIG).is_file()


def merge_adapters(
    adapters: str | os.PathLike[str],
    base: str | os.PathLike[str],
    folder: str | os.PathLike[str],
) -> Description:
    """Merges a model and its adapters into a model folder, atomically; a reward model's with heads.

    Args:
      adapters: a folder with `adapter_config.json` and `adapter_model.safetensors`.
      base: the model folder that they were trained on.
      folder: a new folder, or a model folder to replace.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: the adapters are of another kind or model; the message names file and field or
        tensor.
      TensorFileError: a file of tensors is missing, truncated or damaged.
      ModelFolderError: `base` is not a model folder, or `folder` holds something else.
    """
    source = pathlib.Path(adapters)
    settings = read_settings(source / CONFIG)
    _check_base(source / MADE_FOR, base)
    model = load_model(base)
    config = model.transformer.config
    pairs = read_pairs(source / TENSORS)
    modules = _modules(config, base)
    stacks = dict(model.params[TRAINED])
    changed: dict[str, np.ndarray] = {}
    for module, (a, b) in sorted(pairs.items()):
        if module not in modules:
            raise WeightsError(
                f"{source / TENSORS}: module {module!r} is adapted, and {os.fspath(base)} has "
                "none of this name: are the adapters for this model?"
            )
        for own in modules[module]:
            if own.name not in changed:
                changed[own.name] = np.array(stacks[own.name], np.float32)
            matrix = changed[own.name][own.layer]
            whole = own.place.tensor_shape(matrix.shape)
            inputs, outputs = whole[::-1] if own.place.transposed else whole
            if a.shape[1:] != (inputs,) or b.shape != (outputs, len(a)):
                raise WeightsError(
                    f"{source / TENSORS}: module {module!r} has lora_A {list(a.shape)} and lora_B "
                    f"{list(b.shape)}; its matrix needs [rank, {inputs}] and [{outputs}, rank]"
                )
            fused = own.place.fused
            columns = fused.columns(matrix.shape[1], config.num_heads) if fused else [slice(None)]
            own_b = np.concatenate([b[part] for part in columns])
            with np.errstate(over="ignore", invalid="ignore"):  # refused below, by name
                matrix += settings.scale(module, len(a)) * (a.T @ own_b.T)
                fits = np.isfinite(matrix.astype(stacks[own.name].dtype)).all()
            if not fits:
                raise WeightsError(
                    f"{source / TENSORS}: module {module!r}: the merged matrix holds a number that "
                    "is not finite: the adapters or their alpha are too large"
                )
    for name, stack in changed.items():
        stacks[name] = jnp.asarray(stack, stacks[name].dtype)
    with (source / TENSORS).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    merged = {"folder": source.resolve().name, "sha256": digest}
    provenance = {**model.provenance, "adapters": merged}
    params = {**model.params, TRAINED: stacks}
    heads = read_heads(source, config.d_model, settings.is_classifier)
    if heads is not None:
        params[HEADS] = jax.tree.map(lambda leaf: jnp.asarray(leaf, config.param_dtype), heads)
    form = read_prompt_form(source)
    if form is not None:
        form.give(model.vocabulary)
    labelled = source / CALIBRATION
    if labelled.is_file():
        read_json(labelled)  # refuses what is none before anything is written
    save_model(folder, Model(model.transformer, params, model.vocabulary, provenance))
    if labelled.is_file():
        write_file(epath.Path(folder) / CALIBRATION, labelled.read_bytes())
    return read_description(folder)


def read_settings(path: pathlib.Path) -> AdapterSettings:
    """Reads `adapter_config.json`.

    Raises:
      WeightsError: the adapters are of another kind; the message names the field.
    """
    value = read_json(path)
    if not isinstance(value, dict) or value.get("peft_type") != "LORA":
        kind = value.get("peft_type") if isinstance(value, dict) else None
        raise WeightsError(f"{path}: field 'peft_type' must be 'LORA', got {kind!r}")
    if value.get("bias", "none") != "none":
        raise WeightsError(f"{path}: field 'bias' = {value['bias']!r}: only 'none' is read")
    if value.get("init_lora_weights") not in _BEGINNINGS:
        raise WeightsError(
            f"{path}: field 'init_lora_weights' = {value['init_lora_weights']!r}: such adapters "
            "changed their base, too; convert them with PEFT first"
        )
    saved = value.get("modules_to_save") or []
    if not isinstance(saved, list) or not all(module in _HEADS for module in saved):
        raise WeightsError(
            f"{path}: field 'modules_to_save' = {saved!r}: only a classifier's {SCORE!r} is read"
        )
    for field, said in value.items():
        if said and field not in _NEUTRAL | _READ:
            raise WeightsError(
                f"{path}: field {field!r} = {said!r}: adapters with it compute something else "
                "than W + (alpha / rank) A B, and are not read"
            )
    alphas = value.get("alpha_pattern") or {}
    if not isinstance(alphas, dict) or not all(_is_alpha(alpha) for alpha in alphas.values()):
        raise WeightsError(f"{path}: field 'alpha_pattern' must give numbers over 0 by module")
    for pattern in alphas:
        if not re.fullmatch(r"[\w.]+", pattern):
            raise WeightsError(
                f"{path}: field 'alpha_pattern': {pattern!r} must be the name of a module"
            )
    alpha = value.get("lora_alpha")
    if not _is_alpha(alpha):
        raise WeightsError(f"{path}: field 'lora_alpha' must be a number over 0, got {alpha!r}")
    if not isinstance(value.get("use_rslora", False), bool):
        raise WeightsError(f"{path}: field 'use_rslora' must be true or false")
    return AdapterSettings(alpha, alphas, value.get("use_rslora", False), bool(saved))


def _is_alpha(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9


def _check_base(path: pathlib.Path, base: str | os.PathLike[str]) -> None:
    if not path.exists():
        return
    value = read_json(path)
    wanted = value.get("base_sha256") if isinstance(value, dict) else None
    found = model_digest(base)
    if wanted != found:
        raise WeightsError(
            f"{path}: the adapters were trained on another model than {os.fspath(base)} holds: "
            f"its parameters hash to {found[:12]}, not to {str(wanted)[:12]}"
        )


def read_pairs(path: pathlib.Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Reads `adapter_model.safetensors`.

    Returns:
      Each module's A [rank, in] and B [out, rank], in float32; a classifier's score is left out.

    Raises:
      WeightsError: a tensor is no adapter, is not finite, or lacks its other half.
      TensorFileError: the file is missing, truncated or damaged.
    """
    file = TensorFile(path)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name in file.names:
        if name == _SCORE:
            continue
        match = _TENSOR.fullmatch(name)
        tensor = file.tensor(name)
        if match is None:
            raise WeightsError(f"{path}: tensor {name!r} is no adapter of a layer's matrix")
        if tensor.dtype not in DTYPES or len(tensor.shape) != 2 or 0 in tensor.shape:
            raise WeightsError(
                f"{path}: tensor {name!r} is {tensor.dtype} {list(tensor.shape)}; it must be a "
                f"matrix of {', '.join(DTYPES)} that is not empty"
            )
        values = tensor.mapped().astype(np.float32)
        if not np.isfinite(values).all():
            raise WeightsError(f"{path}: tensor {name!r} holds a number that is not finite")
        parts.setdefault(match["module"], {})[match["part"]] = values
    if not parts:
        raise WeightsError(f"{path}: holds no adapter")
    for module, found in parts.items():
        if len(found) < 2:
            raise WeightsError(
                f"{path}: module {module!r} has lora_{next(iter(found))} alone, not both"
            )
    return {module: (found["A"], found["B"]) for module, found in parts.items()}


def read_heads(source: pathlib.Path, d_model: int, is_classifier: bool) -> Params | None:
    """Reads a reward model's heads.

    Args:
      source: the adapters' folder.
      d_model: the base model's width.
      is_classifier: whether the settings say that there is a score.

    Returns:
      The heads in float32, in the form of `models.reward_model`; None for a language model.

    Raises:
      WeightsError: one of the two heads is missing, of another shape, or not finite.
      TensorFileError: a file is missing, truncated or damaged.
    """
    file = TensorFile(source / TENSORS)
    if _SCORE not in file.names:
        if is_classifier or (source / SECOND_HEAD).exists():
            raise WeightsError(f"{source / TENSORS}: lacks {_SCORE!r}, a reward model's score")
        return None
    if not (source / SECOND_HEAD).exists():
        raise WeightsError(
            f"{source / SECOND_HEAD}: is missing, so the adapters are no reward model of ours, "
            "which also predicts whether an answer is supported and plausible"
        )
    second = TensorFile(source / SECOND_HEAD)

    def head(file: TensorFile, path: pathlib.Path, name: str, *shape: int) -> np.ndarray:
        stored = file.tensor(name) if name in file.names else None
        if stored is not None and stored.dtype in DTYPES and stored.shape == shape:
            values = stored.mapped().astype(np.float32)
            if np.isfinite(values).all():
                return values
        raise WeightsError(f"{path}: {name!r} must be {list(shape)} finite numbers")

    score = head(file, source / TENSORS, _SCORE, 1, d_model)
    return {
        REWARD: {"kernel": score[0]},
        SUPPORTED_AND_PLAUSIBLE: {
            "kernel": head(second, source / SECOND_HEAD, "kernel", d_model),
            "bias": head(second, source / SECOND_HEAD, "bias", 1),
        },
    }


def _modules(config: TransformerConfig, base: str | os.PathLike[str]) -> dict[str, list[_Own]]:
    """Our matrices in each of the family's modules."""
    try:
        family = write_architecture(config)["model_type"]
    except ValueError as error:
        raise WeightsError(f"{os.fspath(base)}: {error}") from error
    matrices = adaptable(config)
    modules: dict[str, list[_Own]] = {}
    for name, place in NAMES[family].places.items():
        if name.startswith(LAYERS) and (own := name.removeprefix(LAYERS)) in matrices:
            for layer in range(config.num_layers):
                module = place.tensor.format(layer).removesuffix(".weight")
                modules.setdefault(module, []).append(_Own(own, layer, place))
    return modules
