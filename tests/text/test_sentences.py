"""Where sentences begin and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.text.sentences import sentence_spans

texts = st.lists(st.one_of(st.sampled_from([". ", "! ", "\n", "A", "Mr. ", "5", "”"]), st.text()))


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?", "Four…"],
        ["He said “Stop.”", "Then he left."],
        ["Dr. A. B. Fenwick of the U.S. Navy met Mr. Ilse.", "She left."],
        ["It rose 3.5 m in 1874.", "In 1902 it fell."],
        ["See no. 5 or Fig. 2 for it.", "Was it so?", "No.", "It was not."],
        ["She knew more than I.", "We agreed."],
        ["It is near St. Ives, i.e. Cornwall, e.g. Penzance."],
        ["Some works, e.g. The Tempest, are short, i.e. They end soon."],
        ["A heading without a mark", "Its text goes\non."],
        ["日本の灯台。", "町は小さい！", "終わり"],
        ["At 5 p.m. Tom left.", "He was at sea by 6 p.m.", "The wind rose."],
        ["Smith et al. found it.", "So did Jones et al.", "Others did not."],
        ["J. Smith et al. (2004) say so.", "See Fig. A2, Figs. 3 and 4 and Eq. 5."],
        ["Profits fell.", "iPad sales rose.", "eBay's did not, approx. iPhone levels."],
        ["She moved to the U.S. in May.", "She liked the U.S.", "It is large."],
        ["He left Acme Inc. Chairman Bob stayed with Foo Ltd.", "Their son did not."],
        ["He has a Ph.D. and a B.A.", "She has, etc. Tom too."],
        ["यह पहला है।", "यह दूसरा है।", "क्या यह तीसरा है?"],
        ["هل هذا صحيح؟", "نعم.", "یہ پہلا ہے۔", "یہ دوسرا ہے۔"],
        ["ይህ አንድ ነው።", "ይህ ሁለት ነው፧", "አዎ።"],
        ["ဒါက ပထမ။", "ဒါက ဒုတိယ။", "នេះជាទីមួយ។", "នេះ។"],
        ["यह पहला है।”", "यह दूसरा है?!", "Եվ այսպես։", "Այո։"],
        ["What?!", "(He knew.)", "[So did I.]"],
        ["the end of it. and more"],
        ["Gov. Hope, Capt. Ilse and prof. Low met.", "The goal was bold.", "We left the coast."],
        ["Jones vs. Hope, cf. Low, is in vol. 3, tabs. 2 and Sept. 1874.", "It ends so."],
    ],
)
def test_sentences_are_found(sentences: list[str]) -> None:
    separator = (
        ""
        if "日" in sentences[0] or "ይ" in sentences[0]
        else "\n \n"
        if "heading" in sentences[0]
        else "  "
    )
    assert split(separator.join(sentences)) == sentences


ABBREVIATIONS = [
    *("mr", "Mrs", "MS", "dr", "prof", "st", "rev", "hon", "gen", "col", "capt", "lt", "sgt"),
    *("gov", "sen", "rep", "mt", "ft", "vs", "cf", "e.g", "i.e", "J", "U.S"),
    *("no", "nos", "vols", "fig", "tabs", "eqs", "secs", "chs", "pp", "approx", "est", "sept"),
    *("Dec", "univ", "Corp", "eſq"),  # with a long s
]


@pytest.mark.parametrize("word", ABBREVIATIONS)
def test_a_full_stop_of_an_abbreviation_ends_nothing(word: str) -> None:
    assert len(split(f"It is {word}. 5 Hills")) == 1
    assert len(split(f"It is {word}x. 5 Hills")) == 2


def test_an_empty_line_after_a_sentence_begins_no_other() -> None:
    assert split(" \n\nOne.\n\n  \n\nTwo \n\n") == ["One.", "Two"]


@given(texts.map("".join))
def test_spans_cover_all_but_white_space_in_order(text: str) -> None:
    position = 0
    for start, end in sentence_spans(text):
        assert not text[position:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        assert "\n\n" not in text[start:end]
        position = end
    assert not text[position:].strip()


@pytest.mark.parametrize(
    "text",
    [
        *("." * 200_000 + "a", ". " * 100_000, "\n" * 200_000, "a." * 99_999, "।" * 200_000),
        *("U.S. " * 40_000, "al." + " " * 200_000, "e.g. iP " * 30_000, '।"' * 100_000),
    ],
)
def test_long_runs_are_no_trouble(text: str) -> None:
    assert sum(end - start for start, end in sentence_spans(text)) <= len(text)
