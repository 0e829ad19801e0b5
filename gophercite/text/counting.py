"""Numbers with their nouns, in messages for people."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns a number and its noun, such as `1 page` and `2 pages`.

    Args:
      number: how many.
      noun: the noun in the singular.
      plural: its plural; `noun` and an s when None.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
