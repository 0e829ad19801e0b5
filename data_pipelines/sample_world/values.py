"""The types of facts' values: invented names, numbers, and words from short lists."""

from typing import Literal

ValueType = Literal[
    "town",
    "person",
    "river",
    "mountain",
    "place",  # an invented name that has no page: a county, a lake, a street
    "year",
    "count",
    "number",
    "metres",
    "kilometres",
    "grams",
    "product",
    "food",
    "colour",
    "stone",
    "month",
    "profession",
    "instrument",
    "tree",
    "fish",
]

# The unit after a number, its minimum and its maximum.
NUMBERS: dict[str, tuple[str, int, int]] = {
    "year": ("", 1100, 1999),
    "count": ("", 100, 9999),
    "number": ("", 12, 480),
    "metres": (" metres", 300, 6999),
    "kilometres": (" kilometres", 15, 1999),
    "grams": (" grams", 20, 4999),
}


def words(text: str) -> tuple[str, ...]:
    """Splits `text` into words, which keeps long lists of them readable."""
    return tuple(text.split())


WORDS: dict[str, tuple[str, ...]] = {
    "product": words(
        "cheese rope glass honey paper clocks boats bricks wool apples salt lamps knives hats "
        "tiles candles drums nets barrels soap"
    ),
    "food": words("seeds berries insects roots snails moss worms nuts leaves eggs"),
    "colour": words("red blue green yellow white black grey brown pink purple"),
    "stone": words("granite marble slate limestone sandstone basalt chalk flint quartz"),
    "month": words(
        "January February March April May June July August September October November December"
    ),
    "profession": words(
        "painter baker sailor doctor teacher singer printer gardener lawyer potter poet weaver "
        "farmer judge"
    ),
    "instrument": words("violin flute harp trumpet piano cello lute organ guitar horn"),
    "tree": words("oaks pines willows birches cedars elms maples poplars firs ashes"),
    "fish": words("trout salmon pike eels carp perch bream tench roach catfish"),
}

FEMALE_NAMES = words("Anna Clara Edith Flora Greta Hanna Ida Julia Laura Agnes Sophie Rosa")
MALE_NAMES = words("Adam Bruno David Emil Felix Hugo Jonas Karl Leo Martin Oscar Simon")
