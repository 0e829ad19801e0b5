"""Comparisons made of checked claims: their labels, their quotes, their way into a reward model.

The last test reads FEVER-symmetric and FoolMeTwice from `../shared/data`, next to the repository,
where they are there; all that it shows is tested on small files, too.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines import convert, tasks
from data_pipelines.claim_questions import inside_sentence, question_by_rule, question_for
from data_pipelines.comparison_input import ComparisonInput
from data_pipelines.converters.fact_checking import CheckedClaim
from data_pipelines.converters.gold import ConversionReport
from data_pipelines.converters.writing import ConversionSettings, split_of
from data_pipelines.fabricated_comparisons import TYPES, fabricate
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import records
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records import Comparison
from gophercite.text.sentences import sentence_spans

SHARED = Path(__file__).parents[2] / "../shared/data/fact_checking"

SHARES = ConversionSettings(validation=0.3, test=0.3)

MILL = Document("m", "The mill", "The mill was built in 1812. It burned in 1874. It has a pond.")
PORT = Document("p", "Alda", "Alda is a port. Ships call every day. It lies on the Kesh.")
HOUSE = Document("h", "Ormsby Hall", "The hall has nine rooms. Nobody lives there.")


def checked(number: int, claim: str, supported: bool, document: Document, quote: str):
    start = document.text.index(quote)
    span = (start, start + len(quote))
    return CheckedClaim(f"set-{number}", claim, supported, document, span, document.title)


CLAIMS = [
    checked(1, "The mill was built in 1812", True, MILL, "built in 1812"),
    checked(2, "The mill was built in 1912", False, MILL, "built in 1812"),
    checked(3, "Alda is a port", True, PORT, "Alda is a port. Ships"),
    checked(4, "Ormsby Hall has ten rooms", False, HOUSE, "nine rooms"),
]


def made_of(claims=CLAIMS, **options):
    report = ConversionReport()
    made = [one.comparison for one in fabricate(claims, "set", report, **options)]
    return {(c.id.rsplit("-", 1)[0], c.source.removeprefix("set_")): c for c in made}, report


def sides(comparison: Comparison) -> tuple[Evidence, Evidence]:
    """The better response and the other, by the labels."""
    assert comparison.preferred in (0, 1)
    better = int(comparison.preferred)
    assert comparison.supported_and_plausible[better] is True
    assert comparison.supported_and_plausible[1 - better] is False
    ((first,), (second,)) = comparison.responses
    return (first, second) if better == 0 else (second, first)


def affirms(evidence: Evidence) -> bool:
    return evidence.claim.startswith(("Yes", "That is right", "That is true", "True"))


def test_each_claim_gives_a_comparison_of_each_type() -> None:
    made, report = made_of()
    assert set(made) == {(claim.id, kind) for claim in CLAIMS for kind in TYPES}
    assert not report.counts
    assert len({comparison.id for comparison in made.values()}) == len(made)


@pytest.mark.parametrize("seed", range(4))
def test_yes_or_no_with_the_same_quote(seed: int) -> None:
    made, _ = made_of(seed=seed)
    for claim in CLAIMS:
        comparison = made[claim.id, "A"]
        better, other = sides(comparison)
        assert affirms(better) is claim.supported
        assert affirms(other) is not claim.supported
        assert better.quote == other.quote
        assert better.title == other.title == claim.document.title
        assert claim.claim[1:] in comparison.question
        assert comparison.question.endswith("?")


def test_a_quote_is_whole_sentences() -> None:
    made, _ = made_of()
    assert sides(made["set-1", "A"])[0].quote == "The mill was built in 1812."
    assert sides(made["set-3", "B"])[0].quote == "Alda is a port. Ships call every day."


@pytest.mark.parametrize("seed", range(4))
def test_the_claim_or_its_negation(seed: int) -> None:
    made, _ = made_of(seed=seed)
    for claim in CLAIMS:
        comparison = made[claim.id, "B"]
        right, wrong = sides(comparison)
        plain, negated = (right, wrong) if claim.supported else (wrong, right)
        assert plain.claim == f"{claim.claim}."
        assert negated.claim.endswith(f"that {inside_sentence(claim.claim)}.")
        assert right.quote == wrong.quote
        assert comparison.question == question_by_rule(claim.claim)


@pytest.mark.parametrize("seed", range(4))
def test_a_false_quote_is_of_another_page_and_as_long(seed: int) -> None:
    made, _ = made_of(seed=seed)
    for claim in CLAIMS:
        assert affirms(sides(made[claim.id, "A2"])[0]) is claim.supported
        said = sides(made[claim.id, "B2"])[0].claim
        assert (said == f"{claim.claim}.") is claim.supported
        for kind in ("A2", "B2"):
            better, other = sides(made[claim.id, kind])
            assert better.claim == other.claim
            assert better.quote in claim.document.text
            assert other.quote not in claim.document.text
            assert any(other.quote in c.document.text for c in CLAIMS)
            assert len(sentence_spans(other.quote)) == len(sentence_spans(better.quote))
            assert better.title == other.title  # the quote alone tells them apart


def test_pages_that_are_too_short_for_a_false_quote_are_passed_over() -> None:
    """A quote that is shorter than the true one would give the label away."""
    short = [
        checked(n, f"Mill {n} burned", True, Document(f"s{n}", f"Mill {n}", "It burned."), "burned")
        for n in range(10, 30)
    ]
    made, report = made_of([CLAIMS[2], *short, CLAIMS[0]], types=("A2",))
    better, other = sides(made["set-3", "A2"])
    assert len(sentence_spans(better.quote)) == len(sentence_spans(other.quote)) == 2
    assert other.quote in MILL.text
    made, report = made_of([CLAIMS[2], *short], types=("A2",))
    assert ("set-3", "A2") not in made
    assert report.counts == {"claims without another page to quote from (A2)": 1}


def test_draws_belong_to_a_claim_and_its_type() -> None:
    whole, _ = made_of()
    few, _ = made_of(types=("B", "A"))
    assert all(whole[key] == comparison for key, comparison in few.items())
    first, _ = made_of(CLAIMS[:1], types=("A",))
    assert first["set-1", "A"] == whole["set-1", "A"]
    other, _ = made_of(seed=1)
    assert other != whole
    many = [checked(n, "Alda is a port", True, PORT, "Alda is") for n in range(200)]
    comparisons, _ = made_of(many, types=("A",))
    assert (
        60 < sum(c.preferred for c in comparisons.values()) < 140
    )  # neither side is the right one
    assert len({c.question for c in comparisons.values()}) == 5


def test_what_cannot_be_made_is_counted() -> None:
    reserved = checked(5, "A )%[ is a mark", True, MILL, "It burned")
    unasked = checked(6, "In 1812 the mill was built", True, MILL, "built in 1812")
    made, report = made_of([reserved, unasked])
    assert set(made) == {("set-6", "A")}
    assert report.counts == {
        "claims or quotes that no answer can contain": 1,
        "claims that no rule turns into a question (B)": 1,
        "claims that no rule turns into a question (B2)": 1,
        "claims without another page to quote from (A2)": 1,
    }
    with pytest.raises(ValueError, match="there is no type 'C'; the types are A, B, A2, B2"):
        made_of(types=("C",))


# --- Questions ---


@pytest.mark.parametrize(
    ("claim", "question"),
    [
        ("Ada Fenwick was an engineer", "Who was Ada Fenwick?"),
        ("The lighthouse is a tower", "What is the lighthouse?"),
        ("A Place in the Sun is a film", "What is A Place in the Sun?"),
        ("Ormsby Hall ( house ) is a house", "What is Ormsby Hall ( house )?"),
        ("The mill was built in 1812", "When was the mill built?"),
        ("The film was released on May 3, 1984", "When was the film released?"),
        ("Ada Fenwick was born in Alda", "Where was Ada Fenwick born?"),
        ("Lost Mills was written by a miller", "By whom was Lost Mills written?"),
        ("Alda is not a port", "What is Alda?"),
        ("Alda has a king", "What is known about Alda?"),
        ("Ada Fenwick plays the organ", "What is known about Ada Fenwick?"),
        ("There is a mill", None),
        ("In 1812 Alda was founded", None),
        ("mills burn", None),
        ("Alda's walls are old", None),
    ],
)
def test_questions_by_rule(claim: str, question: str | None) -> None:
    assert question_by_rule(claim) == question


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="Aa bT1.'()-\nwasinbythe", min_size=1, max_size=300))
def test_rules_never_fail(claim: str) -> None:
    question = question_by_rule(claim)
    assert question is None or question.endswith("?")


def test_a_model_is_asked_and_its_nonsense_passed_over() -> None:
    prompts = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return " What lies on the Kesh?\n\nStatement: something else.\nQuestion: Which?"

    assert question_for("Alda is a port", model) == "What lies on the Kesh?"
    assert prompts[0].endswith("Statement: Alda is a port.\nQuestion:")
    for nonsense in (
        "",
        "\n\n",
        "Alda is a port.",
        "Who? What?",
        "?",
        f"{'x' * 300}?",
        "What ]% is?",
    ):
        assert question_for("Alda is a port", lambda _, said=nonsense: said) == "What is Alda?"
    made, _ = made_of(ask=model)
    assert made["set-3", "B2"].question == made["set-3", "B"].question == "What lies on the Kesh?"


# --- Files ---


FEVER_CLAIM = {"id": 7, "label": "REFUTES", "claim": "Alda was founded in 1912 .",
               "evidence": [[[1, 2, "Alda", 0]]]}  # fmt: skip
SYMMETRIC = {"id": "88", "label": "SUPPORTS", "claim": "Mills burn .",
             "evidence": "Flour -LRB- dust -RRB- explodes in mills ."}  # fmt: skip
FOOLED = {"id": "f", "label": "REFUTES", "text": "Alda was founded in 1912.", "wikipedia_page":
          "Alda_(port)", "gold_evidence": [{"text": "It is of 1812."}]}  # fmt: skip


def lines(path: Path, *values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def converted(format: str, path: Path, *flags: str) -> dict[str, list[Comparison]]:
    out = path.parent / "out"
    assert convert.main([format, str(path), str(out), *flags]) == 0
    names = ("train", "validation", "test")
    return {
        name: list(records.read(out / f"comparisons_{name}.jsonl", Comparison, strict=True))
        for name in names
    }


def test_fever_becomes_comparisons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [
        {"id": name, "text": "…", "lines": f"0\t{name} was founded in 1812 .\n1\tShips call ."}
        for name in ("Alda", "Kesh")
    ]
    lines(tmp_path / "wiki-pages/wiki-001.jsonl", *pages)
    kesh = FEVER_CLAIM | {"id": 8, "evidence": [[[1, 2, "Kesh", 0]]]}
    unknown = {"label": "NOT ENOUGH INFO", "claim": "x", "evidence": []}
    path = lines(tmp_path / "train.jsonl", FEVER_CLAIM, kesh, unknown)
    split = ("--validation", "0", "--test", "0")
    made = {c.id: c for c in converted("fever_comparisons", path, *split)["train"]}
    assert set(made) == {f"fever-{id}-{kind}" for id in (7, 8) for kind in TYPES}
    better, other = sides(made["fever-7-B"])
    assert better.quote == other.quote == "Alda was founded in 1812 ."
    assert other.claim == "Alda was founded in 1912."
    assert made["fever-7-B"].question == "When was Alda founded?"
    assert "1 claims that nothing proves or refutes" in capsys.readouterr().out


ADDED = ("", "0000002", "0000003", "0000004")  # to the ids of a claim's three companions


def test_claims_of_one_source_stay_in_one_split(tmp_path: Path) -> None:
    claims = [
        SYMMETRIC | {"id": f"{number}{added}", "evidence": f"{added} of {number} explodes ."}
        for number in range(10, 50)
        for added in ADDED
    ]
    path = lines(tmp_path / "symmetric.jsonl", *claims, {"label": "SUPPORTS"}, SYMMETRIC)
    made = converted("fever_symmetric_comparisons", path, "--types", "A", "--test", "0.3")
    assert sum(map(len, made.values())) == 161
    sources = {
        split: {re.sub("(0000002|0000003|0000004)?-A$", "", c.id) for c in compared}
        for split, compared in made.items()
    }
    assert sources["train"]
    assert sources["test"]
    assert not sources["train"] & sources["test"]


def test_claims_about_one_text_stay_in_one_split(tmp_path: Path) -> None:
    """Also if only a third claim connects them."""
    texts = ["Mill {} burned in 1812 .", "Mill {} was built of oak .", "Mill {} has a pond ."]
    pairs = [(1, "", 0), (2, "", 1), (3, "", 2), (1, ADDED[1], 1), (2, ADDED[1], 2)]
    claims = [
        SYMMETRIC | {"id": f"{id}{mill}{added}", "evidence": texts[text].format(mill),
                     "claim": f"Mill {mill} burns {place} ."}
        for mill in range(10, 40)
        for place, (id, added, text) in enumerate(pairs)
    ]  # fmt: skip
    alone = [claim for claim in claims if claim["id"].startswith("1")][::2]  # without an addition
    shares = ("--types", "A", "--validation", "0.3", "--test", "0.3")
    files = lines(tmp_path / "one.jsonl", *alone), lines(tmp_path / "two.jsonl", *claims)
    made = converted("fever_symmetric_comparisons", files[1], *shares)
    split_by_mill: dict[str, str] = {}
    for split, compared in made.items():
        for comparison in compared:
            mill = comparison.id[len("fever_symmetric-1") :][:2]
            assert split_by_mill.setdefault(mill, split) == split
    assert set(split_by_mill.values()) == set(made)
    assert sum(map(len, made.values())) == len(claims)
    # Claims that share no text are where their ids put them, and so are those that join them.
    made = converted("fever_symmetric_comparisons", files[0], *shares)
    for split, compared in made.items():
        for comparison in compared:
            id = comparison.id[len("fever_symmetric-") :][:3]
            assert split_of(f"fever_symmetric:{id}", SHARES) == split
            assert split_by_mill[id[1:]] == split


def test_false_quotes_are_from_pages_of_the_same_split(tmp_path: Path) -> None:
    claims = [
        FOOLED | {"id": f"{n}", "wikipedia_page": f"Mill {n}",
                  "gold_evidence": [{"text": f"Mill {n} burned."}]}
        for n in range(60)
    ]  # fmt: skip
    path = lines(tmp_path / "dev.jsonl", *claims)
    made = converted("fool_me_twice_comparisons", path, "--types", "A2", "--test", "0.4")
    for compared in made.values():
        told = [sides(comparison) for comparison in compared]
        assert told
        assert {other.quote for _, other in told} <= {better.quote for better, _ in told}


def test_of_claims_with_one_id_the_first_is_written_in_its_own_split(tmp_path: Path) -> None:
    claims = [
        FOOLED | {"id": f"{n % 30}", "wikipedia_page": f"Mill {n}",
                  "gold_evidence": [{"text": f"It is mill {n}."}]}
        for n in range(60)
    ]  # fmt: skip
    shares = ("--types", "A", "--validation", "0.3", "--test", "0.3")
    made = converted("fool_me_twice_comparisons", lines(tmp_path / "dev.jsonl", *claims), *shares)
    assert sum(map(len, made.values())) == 30
    for split, compared in made.items():
        for comparison in compared:
            title = sides(comparison)[0].title
            assert split_of(f"fool_me_twice:{title}", SHARES) == split


def test_fool_me_twice_and_its_way_into_a_reward_model(tmp_path: Path) -> None:
    other = FOOLED | {"id": "g", "wikipedia_page": "Kesh", "label": "SUPPORTS"}
    path = lines(tmp_path / "dev.jsonl", FOOLED, other, FOOLED | {"label": "MAYBE"})
    split = ("--validation", "0", "--test", "0")
    made = converted("fool_me_twice_comparisons", path, *split)["train"]
    assert len(made) == 8
    assert {evidence.title for c in made for (evidence,) in c.responses} == {"Alda (port)", "Kesh"}
    file = tmp_path / "out/comparisons_train.jsonl"
    tasks.add_comparisons("fabricated", {"train": file}, bundled_vocabulary())
    (batch,) = ComparisonInput("fabricated", "train", 256, 8, seed=0).one_pass()
    assert batch["preferred_weights"].sum() == 8
    preferred = batch["preferred"].astype(int)
    assert (batch["supported_and_plausible"][range(8), preferred] == 1).all()
    assert (batch["supported_and_plausible"][range(8), 1 - preferred] == 0).all()


def test_types_are_for_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lines(tmp_path / "dev.jsonl", FOOLED)
    with pytest.raises(SystemExit):
        convert.main(["squad", str(path), str(tmp_path / "out"), "--types", "A"])
    assert "--types works only for fever_comparisons, fool_me_twice" in capsys.readouterr().err
    wrong = ["fool_me_twice_comparisons", str(path), str(tmp_path / "out"), "--types", "A3"]
    assert convert.main(wrong) == 1
    assert "there is no type 'A3'; the types are A, B, A2, B2" in capsys.readouterr().err


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("format", "file", "least"),
    [
        (
            "fever_symmetric_comparisons",
            "fever_symmetric__symmetric_v0.2__fever_symmetric_dev",
            2600,
        ),
        ("fool_me_twice_comparisons", "fool_me_twice__dataset__dev", 3900),
    ],
)
def test_the_public_sets(tmp_path: Path, format: str, file: str, least: int) -> None:
    out = tmp_path / "out"
    assert convert.main([format, str(SHARED / f"{file}.jsonl.gz"), str(out), "--strict"]) == 0
    made = [c for path in out.iterdir() for c in records.read(path, Comparison, strict=True)]
    assert len(made) >= least
    for comparison in made:
        better, other = sides(comparison)
        assert (better.claim == other.claim) is comparison.source.endswith("2")
        assert (better.quote == other.quote) is not comparison.source.endswith("2")
