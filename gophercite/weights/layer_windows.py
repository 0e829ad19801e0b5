"""Which layers of a checkpoint have windowed attention, from its `config.json`."""

from gophercite.storage.json_fields import JsonFields, describe

FULL, SLIDING = "full_attention", "sliding_attention"

_MOST_LAYERS = 1000


def qwen_windows(fields: JsonFields) -> tuple[int | None, ...] | None:
    """Qwen's windows; the first `max_window_layers` layers have none.

    Raises:
      ValueError: a field is missing or of the wrong type, or layers have windows although
        `use_sliding_window` is false.
    """
    if not fields.flag("use_sliding_window"):
        refuse_windows(fields)
        return None
    window, layers = fields.integer("sliding_window"), read_layers(fields, "num_hidden_layers")
    if "layer_types" not in fields or "max_window_layers" in fields:
        unlimited = fields.integer("max_window_layers")
    if "layer_types" not in fields:
        return tuple(None if layer < unlimited else window for layer in range(layers))
    return windows_of(kinds_of_layers(fields, every=1), window)


def refuse_windows(fields: JsonFields, layers: str = "num_hidden_layers") -> None:
    """Refuses a list of the layers' attention kinds unless all layers have full attention.

    Args:
      fields: the fields of `config.json`.
      layers: name of the field with the number of layers.

    Raises:
      ValueError: there is a list, and it is not `FULL` for each layer.
    """
    kinds = fields.values.get("layer_types")
    if kinds is not None and kinds != [FULL] * read_layers(fields, layers):
        raise fields.error(
            "layer_types", f"got {describe(kinds)}: without a window each must be {FULL!r}"
        )


def windows_of(kinds: list[str], window: int) -> tuple[int | None, ...]:
    """Each layer's window, from its kind; None for full attention."""
    return tuple(window if kind == SLIDING else None for kind in kinds)


def kinds_of_layers(fields: JsonFields, every: int) -> list[str]:
    """Each layer's kind of attention: `FULL` or `SLIDING`.

    Args:
      fields: the fields of `config.json`.
      every: if the file has no list, every n-th layer has full attention.

    Raises:
      ValueError: the list has other kinds, or the wrong length.
    """
    layers = read_layers(fields, "num_hidden_layers")
    if "layer_types" not in fields:
        if every < 1:
            raise fields.error("sliding_window_pattern", f"{every} must be at least 1")
        return [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]
    kinds = fields.values["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.error("layer_types", f"expected a list of {layers}, got {describe(kinds)}")
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING):
            raise fields.error(
                f"layer_types[{index}]", f"{describe(kind)} is not one of {FULL}, {SLIDING}"
            )
    return kinds


def read_layers(fields: JsonFields, name: str) -> int:
    """The number of layers.

    Raises:
      ValueError: the number is not plausible.
    """
    layers = fields.integer(name)
    if not 1 <= layers <= _MOST_LAYERS:  # a larger claim would only fill the memory
        raise fields.error(name, f"{layers} must be from 1 to {_MOST_LAYERS}")
    return layers
