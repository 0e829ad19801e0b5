"""The architecture of T5X's decoder-only network, from its parameters' shapes and config.gin.

T5X's `examples/decoder_only/network.py` has RMSNorm, biases by distance shared by all layers,
unscaled scores, an MLP with one or two input projections, and no other biases. Embeddings and
logits share one matrix, in which case logits are divided by the square root of the width, or have
two separate matrices. Its checkpoints have no description of the architecture. The shapes give the
sizes; the names give the MLP's number of input projections and whether embeddings are tied. The
rest, which is the MLP's activation and the distance from which on all distances share one bias,
comes from the run's `config.gin` or from the user.
"""

import ast
import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from gophercite.models.config import Activation, TransformerConfig
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.model_types import comparable
from gophercite.weights.names import LAYERS, Place, TensorNames

CONFIG = "config.gin"

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
}
"""Names that T5X's networks have for activations that are ours too."""

BUCKETS, MAX_DISTANCE = 32, 128
"""What T5X's network has; nothing in a checkpoint says the second."""

_LINEAR = "linear"
_MOST_LAYERS = 1000
_LAYER = re.compile(r"decoder/layers_(\d+)/")
_EMBEDDING = "decoder/token_embedder/embedding"
_BIASES = "decoder/relpos_bias/rel_embedding"
_QUERY = "self_attention/query/kernel"
_LOGITS = "decoder/logits_dense/kernel"
_SETTING = re.compile(r"^(?:[\w/]*/)?(?:\w+\.)*TransformerConfig\.(\w+)\s*=\s*(.+)$")
_PREFIX = re.compile(r"\.inputs_bidirectional_attention\s*=\s*True\s*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Network:
    """The settings of a network that its shapes don't determine.

    Attributes:
      activations: activations of the MLP's input projections, with T5X's names: `("relu",)`, or for
        a gated MLP `("gelu", "linear")`.
      max_distance: distance from which on all distances share the last bias.
    """

    activations: tuple[str, ...]
    max_distance: int = MAX_DISTANCE


def t5x_names(activations: tuple[str, ...]) -> TensorNames:
    """The names of our parameters in T5X's decoder-only checkpoints.

    Args:
      activations: as in `Network`; they determine which input projection is the gate.
    """
    if len(activations) == 1:
        inner = {"up": "mlp/wi/kernel"}
    else:
        up = activations.index(_LINEAR)
        inner = {"up": f"mlp/wi_{up}/kernel", "gate": f"mlp/wi_{1 - up}/kernel"}
    of_layer = {
        "attention_norm": "pre_self_attention_layer_norm/scale",
        **{name: f"self_attention/{name}/kernel" for name in ("query", "key", "value", "out")},
        "mlp_norm": "pre_mlp_layer_norm/scale",
        **inner,
        "down": "mlp/wo/kernel",
    }
    places = {
        "embed/embedding": Place(_EMBEDDING),
        "embed/distance_biases": Place(_BIASES),
        "final_norm/scale": Place("decoder/decoder_norm/scale"),
        "unembed/kernel": Place(_LOGITS),
        **{LAYERS + ours: Place(f"decoder/layers_{{}}/{name}") for ours, name in of_layer.items()},
    }
    return TensorNames(places, prefix="")


def read_network(
    run: pathlib.Path, activations: tuple[str, ...] | None, max_distance: int | None
) -> Network:
    """Reads a network's settings from a run's `config.gin` and the user's arguments.

    Args:
      run: the folder of the run's checkpoints, in which T5X writes `config.gin`.
      activations: the user's setting, which overrides the file's.
      max_distance: the user's setting; T5X's own by default.

    Returns:
      The settings.

    Raises:
      WeightsError: the activation is unknown, or the model attends to its inputs bidirectionally.
    """
    path = run / CONFIG
    settings = _read_settings(path)
    if activations is None:
        found = settings.get("mlp_activations")
        if settings and found is None:
            found = ("relu",)  # T5X's own default, which config.gin may omit
        activations = (found,) if isinstance(found, str) else found
    if activations is None:
        raise WeightsError(
            f"{path}: there is no such file, or it has no TransformerConfig: say the MLP's "
            "activations (--activations relu, or gelu,linear for a gated one)"
        )
    _check_activations(path, activations)
    return Network(tuple(activations), MAX_DISTANCE if max_distance is None else max_distance)


def read_architecture(shapes: Mapping[str, tuple[int, ...]], network: Network) -> TransformerConfig:
    """Infers the architecture from the parameters' shapes.

    Args:
      shapes: shapes by T5X's paths. Those not used here are compared with the architecture when the
        parameters are read.
      network: the settings that shapes don't determine.

    Returns:
      The architecture, with default settings for its computation.

    Raises:
      ValueError: a parameter that determines a size is missing or not a matrix, or the sizes don't
        fit.
    """
    layers = {int(match[1]) for name in shapes if (match := _LAYER.match(name))}
    if not layers:
        raise ValueError(
            "no 'decoder/layers_0/…': the layers of T5X's decoder-only network are not there"
        )
    if len(layers) > _MOST_LAYERS:
        raise ValueError(f"{len(layers)} layers are more than {_MOST_LAYERS}")
    vocabulary, width = _matrix(shapes, _EMBEDDING)
    heads, buckets = _matrix(shapes, _BIASES)
    _, joined = _matrix(shapes, f"decoder/layers_0/{_QUERY}")
    if joined % heads:
        raise ValueError(f"{_QUERY} has {joined} columns, which {heads} heads can't share")
    gated = len(network.activations) == 2
    inner = "mlp/wi_0/kernel" if gated else "mlp/wi/kernel"
    first = f"decoder/layers_0/{inner}"
    if first not in shapes:
        raise ValueError(
            f"parameter {first!r} is missing: the MLP's activations are not "
            f"{', '.join(network.activations)}"
        )
    return decoder_only(
        network,
        vocab_size=vocabulary,
        d_model=width,
        num_layers=len(layers),
        num_heads=heads,
        head_dim=joined // heads,
        d_ff=_matrix(shapes, first)[1],
        distance_buckets=buckets,
        tied_embeddings=_LOGITS not in shapes,
    )


def decoder_only(
    network: Network, *, tied_embeddings: bool, distance_buckets: int = BUCKETS, **sizes: int
) -> TransformerConfig:
    """Our architecture for T5X's decoder-only network.

    Args:
      network: the MLP's activations and the maximum distance.
      tied_embeddings: whether embeddings and logits share one matrix.
      distance_buckets: number of biases per head.
      **sizes: sizes, as named in `TransformerConfig`.

    Returns:
      The architecture.
    """
    activation = next(name for name in network.activations if name != _LINEAR)
    return TransformerConfig(
        **sizes,  # type: ignore[arg-type]
        activation=ACTIVATIONS[activation],
        gated_mlp=len(network.activations) == 2,
        position="t5",
        distance_buckets=distance_buckets,
        max_distance=network.max_distance,
        query_pre_attn_scalar=1.0,
        tied_embeddings=tied_embeddings,
        scale_logits=tied_embeddings,
    )


def network_of(config: TransformerConfig) -> Network:
    """The settings of T5X's decoder-only network for an architecture.

    Args:
      config: the architecture.

    Returns:
      The network, with T5X's own maximum distance.

    Raises:
      ValueError: T5X's network does not support the architecture; the message names what it lacks.
    """
    activations: tuple[str, ...] = (config.activation,)
    network = Network((*activations, _LINEAR) if config.gated_mlp else activations)
    sizes = ("vocab_size", "d_model", "num_layers", "num_heads", "head_dim")
    others = ["activation"]
    if config.activation in ACTIVATIONS:
        own = decoder_only(
            network,
            tied_embeddings=config.tied_embeddings,
            d_ff=config.mlp_width,
            **{name: getattr(config, name) for name in sizes},
        )
        wanted, found = comparable(config), comparable(own)
        others = [name for name, value in wanted.items() if found[name] != value]
    if others:
        lacks = ", ".join(f"{name} = {getattr(config, name)!r}" for name in others)
        raise ValueError(f"T5X's decoder-only network has no {lacks}")
    return network


def _matrix(shapes: Mapping[str, tuple[int, ...]], name: str) -> tuple[int, int]:
    shape = shapes.get(name)
    if shape is None:
        raise ValueError(f"parameter {name!r} is missing")
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"parameter {name!r} has the shape {list(shape)}: must be a matrix")
    return shape[0], shape[1]


def _check_activations(path: pathlib.Path, activations: Any) -> None:
    named = isinstance(activations, tuple | list) and all(type(n) is str for n in activations)
    gated = named and len(activations) == 2 and _LINEAR in activations
    others = [name for name in activations if name != _LINEAR] if named else []
    if len(others) != 1 or not (gated or len(activations) == 1) or others[0] not in ACTIVATIONS:
        raise WeightsError(
            f"{path}: mlp_activations {activations!r} are not computed here: one of "
            f"{', '.join(ACTIVATIONS)}, alone or beside {_LINEAR!r}"
        )


def _read_settings(path: pathlib.Path) -> dict[str, Any]:
    """Reads the network's settings from a gin file as text, without executing any of it.

    Raises:
      WeightsError: a value can't be read, or the model attends to its inputs bidirectionally.
    """
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path}: is no text in UTF-8 ({error})") from error
    text = text.replace("\\\n", " ")  # join continued lines
    if _PREFIX.search(text):
        raise WeightsError(
            f"{path}: inputs_bidirectional_attention = True: only causal attention is computed"
        )
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if (match := _SETTING.match(line.strip())) is None:
            continue
        name, value = match.groups()
        if name == "mlp_activations":
            try:
                settings[name] = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                raise WeightsError(
                    f"{path}:{number}: {name} = {value[:80]}: must be a tuple of names"
                ) from None
        else:
            settings[name] = value
    return settings
