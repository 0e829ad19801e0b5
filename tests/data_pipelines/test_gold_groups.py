"""An article, and a passage, is in one split, under whatever names and in whatever files."""

import collections
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import convert
from data_pipelines.converters import gold, titles
from data_pipelines.converters.gold import GoldQuestion
from gophercite.documents import Document

SPLITS = ("train", "validation", "test")


def squad(path, articles):
    path.write_text(
        json.dumps(
            {
                "data": [
                    {
                        "title": title,
                        "paragraphs": [
                            {"context": text, "qas": [asked(f"{path.stem}{title}{n}", text)]}
                            for n, text in enumerate(texts)
                        ],
                    }
                    for title, texts in articles
                ]
            }
        )
    )
    return path


def asked(id, text):
    answer = {"text": text[:5], "answer_start": 0}
    return {"id": id, "question": "What is it?", "answers": [answer]}


def splits(out, field):
    """In which splits each title, or each text, is."""
    found = collections.defaultdict(set)
    for split in SPLITS:
        for line in (out / f"documents_{split}.jsonl").read_text().splitlines():
            found[json.loads(line)[field]].add(split)
    return found


def converted(out, *files):
    given = ["squad", *map(str, files), str(out), "--validation", "0.3", "--test", "0.2"]
    assert convert.main(given) == 0


def words(n):
    return f"{'abcdefghij'[n % 10]}{n}"


NUMBERS = range(60)


def test_a_title_with_and_without_underscores_is_one(tmp_path):
    one = squad(tmp_path / "a.json", [(f"Old_Mill_{words(n)}", [f"Alpha {n}."]) for n in NUMBERS])
    two = squad(tmp_path / "b.json", [(f"Old Mill {words(n)}", [f"Beta {n}."]) for n in NUMBERS])
    converted(tmp_path / "out", one, two)
    found = splits(tmp_path / "out", "title")
    assert set.union(*found.values()) == set(SPLITS)
    assert all(len(each) == 1 for each in found.values())


def test_an_article_with_a_passage_of_another_file_stays_whole(tmp_path):
    one = squad(tmp_path / "a.json", [(f"First {words(n)}", [f"Shared {n}."]) for n in NUMBERS])
    articles = [
        (f"Second {words(n)}", [f"Before {n}.", f"Shared {n}.", f"After {n}."]) for n in NUMBERS
    ]
    two = squad(tmp_path / "b.json", articles)
    converted(tmp_path / "out", one, two)
    for field in ("title", "text"):
        assert all(len(each) == 1 for each in splits(tmp_path / "out", field).values())
    flags = ["--articles", "--validation", "0.3"]
    assert convert.main(["squad", str(one), str(two), str(tmp_path / "whole"), *flags]) == 0
    pages = [
        json.loads(line)
        for split in SPLITS
        for line in (tmp_path / "whole" / f"documents_{split}.jsonl").read_text().splitlines()
    ]
    titles = collections.Counter(page["title"] for page in pages)
    assert len(titles) == 120
    assert set(titles.values()) == {1}


@pytest.mark.parametrize("names", [("T_{}", "T {}"), ("P {}", "Q {}")])
def test_a_passage_of_two_articles_of_a_file_is_in_one_split(tmp_path, names):
    articles = [(name.format(words(n)), [f"Same {n} passage."]) for name in names for n in NUMBERS]
    converted(tmp_path / "out", squad(tmp_path / "a.json", articles))
    assert all(len(each) == 1 for each in splits(tmp_path / "out", "text").values())


def question(group, text, page):
    return GoldQuestion("", "?", Document("d", "T", text), group, ("a",), None, page)


some = st.tuples(*(st.sampled_from("abcde") for _ in range(3)))


@given(st.lists(st.lists(some, max_size=8), max_size=3))
def test_groups_are_those_that_are_connected(files):
    given_ = [[question(f"{n}:{g}", t, f"{p}_") for g, t, p in f] for n, f in enumerate(files)]
    found = gold.of_several_files(given_)
    flat = [item for file in given_ for item in file]
    names = [{f"g{i.group}", f"t{i.document.text}", f"p{i.page}"} for i in flat]
    # The second formulation: spread the lowest number of each set until nothing changes.
    lowest = list(range(len(flat)))
    for _ in flat:
        lowest = [
            min(lowest[k] for k in range(len(flat)) if names[k] & names[n])
            for n in range(len(flat))
        ]
    assert [item.group for item in found] == [flat[n].group for n in lowest]


def test_titles_for_many_passages_that_begin_alike_take_linear_time():
    texts = [f"On this page you will find all that we know about it {n}" for n in range(20_000)]
    start = time.process_time()
    minted = titles.mint_titles(texts)
    assert time.process_time() - start < 5
    assert len(set(minted)) == len(texts)
    assert minted[-1].endswith(f"({len(texts) - len({t for t in minted if '(' not in t}) + 1})")


@given(st.lists(st.sampled_from(["A mill.", "A mill (2)", "A mill (3) b", "A", "B c d e"])))
def test_numbers_of_titles_are_the_first_that_are_free(texts):
    minted = titles.mint_titles(texts)
    assert len(set(minted)) == len(texts)
    taken = set()
    for title in minted:
        stem, _, number = title.rpartition(" (")
        if stem and stem in taken and number.endswith(")") and title not in texts:
            assert all(f"{stem} ({n})" in taken for n in range(2, int(number[:-1])))
        taken.add(title)


def test_a_title_of_nothing_but_marks_is_replaced(tmp_path):
    converted(tmp_path / "out", squad(tmp_path / "a.json", [("%<", ["A mill."]), ("B", ["Kesh."])]))
    assert set(splits(tmp_path / "out", "title")) == {"Untitled", "B"}
