"""Numbers in untrusted lines of results, where true and false count as 1 and 0."""

from gophercite.storage.json_fields import JsonFields


def number(fields: JsonFields, name: str) -> float | None:
    """Returns a finite number, or None if the field is absent or null.

    Args:
      fields: the line.
      name: the field.

    Raises:
      RecordError: the field holds something else.
    """
    value = fields.values.get(name)
    return float(value) if isinstance(value, bool) else fields.optional_number(name)


def share(fields: JsonFields, name: str) -> float | None:
    """Returns a number in [0, 1], or None if the field is absent or null.

    Args:
      fields: the line.
      name: the field.

    Raises:
      RecordError: the field holds something else.
    """
    value = number(fields, name)
    if value is not None and not 0 <= value <= 1:
        raise fields.error(name, f"expected a number from 0 to 1, got {value:g}")
    return value
