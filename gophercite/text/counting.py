"""Numbers in messages for people: with their nouns, and in per cent."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns a number and its noun, such as `1 page` and `2 pages`.

    Args:
      number: how many.
      noun: the noun in the singular.
      plural: its plural; `noun` and an s when None.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def percent(share: float) -> str:
    """Returns a share that a person chose in per cent, without rounding 0.999 to `100%`."""
    return f"{100 * share:.10g}%"
