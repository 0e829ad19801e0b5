"""The examples and preambles of few-shot prompts: five of each style, written for this project.

Short questions are answered in the syntax of inline evidence, with quotes that may leave out words
(`[...]`). Questions that ask for an explanation are answered by a claim alone; a rule finds the
evidence afterwards.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Example:
    """A page, a question about it, and the answer as it should be written."""

    title: str
    text: str
    question: str
    answer: str


SHORT_PREAMBLE = (
    "Each of the answers below names its source: the title of a page, and the words of that page "
    "that prove the answer. Words that prove nothing may be left out, marked by [...]."
)

CITED_PREAMBLE = (
    "Each of the answers below is followed by its source: the title of a page, and the sentences "
    "of that page that prove the answer."
)

SHORT = (
    Example(
        "Lighthouse of Ormsby",
        "The lighthouse of Ormsby stands on the north mole of the harbour. It was built between "
        "1872 and 1874, after the wreck of the Marianne, to plans by the engineer Ada Fenwick, and "
        "replaced a beacon of wood. Its light is 31 metres above the sea.",
        "who designed the ormsby lighthouse?",
        "%<The engineer Ada Fenwick.>%(Lighthouse of Ormsby)%[It was built between 1872 and 1874, "
        "[...] to plans by the engineer Ada Fenwick]%",
    ),
    Example(
        "Glass",
        "Glass is made by melting sand, soda and lime. Cobalt turns it blue and manganese violet; "
        "the green of common bottles comes from traces of iron in the sand. Selenium is added to "
        "take the green away.",
        "what makes bottles green?",
        "%<Traces of iron in the sand.>%(Glass)%[the green of common bottles comes from traces of "
        "iron in the sand.]%",
    ),
    Example(
        "Bicycle",
        "The velocipede of 1817 had no pedals: its rider pushed it along with the feet. Pedals on "
        "the front wheel came in the 1860s, the chain to the rear wheel with the safety bicycle of "
        "1885. Air-filled tyres followed three years later.",
        "in which year did bicycles get air-filled tyres",
        "%<In 1888, three years after the safety bicycle of 1885.>%(Bicycle)%[the safety bicycle "
        "of 1885. Air-filled tyres followed three years later.]%",
    ),
    Example(
        "Swift (bird)",
        "Swifts feed, drink, mate and even sleep on the wing. Outside the time of breeding, common "
        "swifts have been recorded to stay in the air for ten months. They nest under roofs and in "
        "holes of walls, and return to the same place every year.",
        "how long can a swift fly without landing?",
        "%<Ten months.>%(Swift (bird))%[common swifts have been recorded to stay in the air for "
        "ten months.]%",
    ),
    Example(
        "Salt tax",
        "From the fourteenth century on, salt was taxed in most of the kingdom. Six regions were "
        "distinguished; in the first, everyone older than eight had to buy a fixed amount every "
        "year, whether it was needed or not. The tax was abolished in 1790 and came back in 1806.",
        "when was the salt tax abolished for the first time?",
        "%<In 1790.>%(Salt tax)%[The tax was abolished in 1790]%",
    ),
)

LONG_PREAMBLE = (
    "Each of the questions below is answered in plain words, briefly, and with nothing that the "
    "page above it does not say."
)

LONG = (
    Example(
        "Bread",
        "Yeast lives on the sugars in the dough and gives off carbon dioxide. The gluten of wheat "
        "is elastic enough to hold the gas in bubbles, so that the dough rises; in the oven the "
        "walls of the bubbles become firm. Flour of rice or maize has no gluten.",
        "why does bread made from rice flour stay flat?",
        "Because rice has no gluten. In wheat dough, gluten holds the gas that the yeast gives "
        "off, and that is what makes it rise.",
    ),
    Example(
        "Tide",
        "The pull of the moon is stronger on the side of the earth that faces it than on the "
        "other. The sea bulges on both sides, and as the earth turns, a coast passes both bulges "
        "in a little more than a day. When sun and moon stand in one line, at new and full moon, "
        "their pulls add up to spring tides.",
        "Why are there two high tides a day and not one?",
        "The moon makes the sea bulge on the side that faces it and on the opposite side too, and "
        "as the earth turns, a coast passes both bulges in about a day.",
    ),
    Example(
        "Echo",
        "The ear tells two sounds apart when there is at least a tenth of a second between them. "
        "Sound travels about 34 metres in that time, so a wall must be 17 metres away for its echo "
        "to be heard by itself. What comes back sooner only makes a room sound fuller.",
        "why is there no echo in my bathroom when I shout?",
        "There is one, but it comes back too soon to be heard by itself: walls have to be about 17 "
        "metres away for that. In a small room it only makes the sound fuller.",
    ),
    Example(
        "Rust",
        "Iron rusts where water and oxygen reach it. The rust takes more room than the metal did "
        "and flakes off, so that fresh metal lies bare. The oxide of aluminium, in contrast, stays "
        "as a thin and tight skin that keeps the air away.",
        "Why doesn't aluminium rust away as iron does?",
        "It does react with the air, but its oxide stays on it as a thin, tight skin that keeps "
        "air away. Rust flakes off and leaves fresh iron bare.",
    ),
    Example(
        "Stamp",
        "Before 1840, letters were paid for by those who received them, by distance and number of "
        "sheets. Many refused, and had read what they wanted to know from marks on the cover. With "
        "stamps the sender paid, one price for any distance, and the number of letters doubled in "
        "a year.",
        "What was the point of inventing postage stamps?",
        "They made the sender pay, at one price for any distance. Before, those who received a "
        "letter had to pay for it, and many refused.",
    ),
)
