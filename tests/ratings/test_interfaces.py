"""Every interface, walked without scripts on a real server, from files to exported records."""

import json
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from data_pipelines.comparisons import settle
from data_pipelines.converters.webgpt import read_webgpt_comparisons
from gophercite import cli, records
from gophercite.documents import Document
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.schema import items, ratings
from gophercite.ratings.study import Study
from gophercite.records import Comparison, RatedAnswer
from tests.ratings.served import Page, Served, serve, study_in

TEXT = "A town.\n\nIts lighthouse was built in 1874. It stands on the north pier. " + "More. " * 900
PAGE = {"id": "o", "title": "Ormsby", "text": TEXT, "url": "https://towns.example/ormsby"}
QUOTE = "Its lighthouse was built in 1874."
GOOD = {"claim": "In 1874.", "title": "Ormsby", "quote": QUOTE}
BAD = {"claim": "In spring.", "title": "Ormsby", "quote": "It stands on the north pier."}
WORDS = "The chosen answer says when it was built, and proves it."
ALL = {
    "comparison": {
        "plausible_0": "yes",
        "supported_0": "yes",
        "plausible_1": "yes",
        "supported_1": "no",
        "preferred": "0",
        "comment": WORDS,
    },
    "free-text": {
        "plausible_0": "yes",
        "plausible_1": "no",
        "preferred": "0",
        "comment": WORDS,
    },
    "truthfulqa": {"truthful_0": "no", "informative_0": "yes"},
    "stance": {"accurate_0": "no", "stance_0": "affirms"},
    "long-comparison": {"overall": "-2"},
    "minimal": {"accuracy": "-1", "coherence": "0", "overall": "-2"},
}


def write(path: pathlib.Path, *lines: Any) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def files(folder: pathlib.Path) -> dict[str, list[str]]:
    """Arguments of `rate new` for each form."""
    pages = write(folder / "pages.jsonl", PAGE)
    comparison = {"id": "c1", "question": "When was the lighthouse built?", "source": "mine"}
    pair = write(folder / "pair.jsonl", {**comparison, "responses": [[GOOD], [BAD]]})
    rated = {"question_id": "q1", "question": comparison["question"], "documents": [PAGE]}
    rated |= {"document": "o"}
    single = write(folder / "single.jsonl", {**rated, **GOOD, "model": "SFT-7"})
    question = {"id": "q1", "question": comparison["question"], "source": "mine", "documents": []}
    trusted = {"answers": ["In 1874"], "incorrect_answers": ["In 1920"]}
    questions = write(folder / "questions.jsonl", {**question, **trusted})
    references = [{"title": "Ormsby", "domain": "towns.example", "extract": QUOTE}]
    sides = [
        {"answer": "It was built in 1874 [1]. It is tall.", "references": references},
        {"answer": "Nobody knows.", "references": []},
    ]
    long = write(folder / "long.jsonl", {**comparison, "responses": sides})
    return {
        "comparison": [pair, "--documents", pages],
        "free-text": [pair, "--documents", pages],
        "truthfulqa": [single, "--questions", questions],
        "stance": [single, "--questions", questions],
        "long-comparison": [long],
        "minimal": [long],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("interfaces")
    for form, arguments in files(folder).items():
        settings = ["minimum_seconds=0", "raters=99"]
        settings += ["parts_required=0"] if form == "long-comparison" else []
        options = ["--form", form, *(word for each in settings for word in ("--set", each))]
        assert cli.main(["rate", "new", str(folder / "study"), *arguments, *options]) == 0
    return folder


@pytest.fixture(scope="module")
def served(folder: pathlib.Path) -> Iterator[Served]:
    with serve(Study(folder / "study")) as served:
        yield served


def address(served: Served, form: str) -> str:
    with served.study.store.reading() as connection:
        return f"/e/{experiment_named(connection, form).id}"


def is_swapped(served: Served, form: str) -> bool:
    with served.study.store.reading() as connection:
        experiment = experiment_named(connection, form)
        query = sa.select(items.c.swapped).where(
            items.c.experiment_id == experiment.id, items.c.role == "item"
        )
        return bool(connection.execute(query).scalar_one())


def as_shown(values: dict[str, str], swapped: bool) -> dict[str, str]:
    """Values by the answers' own order, as a rater sees them: written here a second time."""
    if not swapped:
        return values
    turned = {}
    for name, value in values.items():
        if name.endswith(("_0", "_1")):
            name = name[:-1] + ("1" if name.endswith("0") else "0")
        elif name == "preferred":
            value = {"0": "1", "1": "0"}.get(value, value)
        elif name in ("accuracy", "coherence", "overall", "unsupported"):
            value = str(-int(value))
        turned[name] = value
    return turned


def pass_checks(served: Served, browser: Any, here: str) -> Page:
    """Answers practice by what is written to be right, and comes to the first item."""
    with served.study.store.reading() as connection:
        rows = connection.execute(
            sa.select(items).where(items.c.role == "check", items.c.experiment_id == int(here[3:]))
        ).all()
    expected = {row.content["question"]: row.expected for row in rows}
    for _ in rows:
        page = browser.get(here)
        (right,) = (expected[question] for question in expected if question in page.text)
        first = {name: v if isinstance(v, str) else v[0] for name, v in right.items()}
        rest = dict.fromkeys(("plausible_0", "supported_0", "plausible_1", "supported_1"), "no")
        rest |= dict.fromkeys(("truthful_0", "informative_0"), "no")
        rest |= dict.fromkeys(("accuracy", "coherence", "overall"), "0")
        if first.get("preferred"):
            rest[f"plausible_{first['preferred']}"] = "yes"
            rest[f"supported_{first['preferred']}"] = "yes"
        sent = {name: v for name, v in (rest | first).items() if name in page.elements.names}
        answer = browser.send(here, page.form | sent)
        assert "That is right" in answer.text, answer.text
    return browser.get(here)


@pytest.mark.parametrize("form", ALL)
def test_from_the_link_to_the_vote(served: Served, form: str) -> None:
    browser = served.browser(f"walker of {form}")
    home = browser.get("/")
    here = address(served, form)
    assert home.has("a", href=here)
    assert "1 to go" in home.text
    practice = browser.get(here)
    assert "Practice 1 of 4" in practice.text
    page = pass_checks(served, browser, here)
    assert "0 rated, 1 to go" in page.text
    assert "lighthouse" in page.text
    shown = as_shown(ALL[form], is_swapped(served, form))
    incomplete = {**page.form, **shown}
    last = list(shown)[-1]
    del incomplete[last]
    again = browser.send(here, incomplete)
    assert again.status == 422
    kept = {name: again.form.get(name) for name in shown if name != last}
    assert kept == {name: value for name, value in shown.items() if name != last}
    assert again.has("div", role="alert")
    done = browser.send(here, again.form | shown)
    assert done.status == 200
    assert "Nothing is left for you" in done.text
    with served.study.store.reading() as connection:
        experiment = experiment_named(connection, form)
        query = sa.select(ratings).where(ratings.c.experiment_id == experiment.id)
        (row,) = connection.execute(query).all()
    assert row.values == ALL[form], "by the answers' own order"
    assert "1 rated, 0 to go" in browser.get("/").text
    for tab, said in (("instructions", "How it works"), ("examples", "Examples")):
        assert said in browser.get(f"{here}/{tab}").text


def test_what_raters_see(served: Served) -> None:
    """By form: URL hidden or shown, no model's name, trusted answers, no left and right."""
    pages = {}
    for form in ALL:
        browser = served.browser(f"reader of {form}")
        pages[form] = pass_checks(served, browser, address(served, form))
    assert "towns.example" not in pages["comparison"].source
    assert "https://towns.example/ormsby" in pages["free-text"].text
    assert "supported_0" not in pages["free-text"].elements.names
    assert pages["free-text"].text.count("Ormsby") == 2, "claim and quote are one text"
    assert "In 1920" in pages["truthfulqa"].text
    assert QUOTE not in pages["truthfulqa"].text, "the claim alone"
    assert QUOTE not in pages["stance"].text
    assert "The belief" in pages["stance"].text
    assert "In 1920" in pages["stance"].text
    assert "support.2_0" in pages["long-comparison"].elements.names | {
        name.replace("_1", "_0") for name in pages["long-comparison"].elements.names
    }
    for form, page in pages.items():
        assert "SFT-7" not in page.source
        assert "left" not in page.text.replace("is left", ""), form
        assert "right" not in page.text, form
        assert not page.has("input", name="plausible_0", checked=""), "nothing is suggested"
        styles = [a for tag, a in page.elements.elements if "style" in a or tag == "style"]
        handlers = [name for _, a in page.elements.elements for name in a if name.startswith("on")]
        assert styles == handlers == []


def test_the_quote_in_its_page(served: Served) -> None:
    browser = served.browser("opener")
    page = pass_checks(served, browser, address(served, "comparison"))
    links = [
        a["href"] for tag, a in page.elements.elements if tag == "a" and "/page/" in str(a["href"])
    ]
    assert len(links) == 2
    marked = {browser.get(str(link)).elements.marked for link in links}
    assert marked == {GOOD["quote"], BAD["quote"]}
    stored = browser.get(str(links[0]))
    assert "towns.example" not in stored.source
    assert "characters are not shown" in stored.text, "a long page is cut"
    assert stored.has("a", href="#quote")
    assert stored.has("mark", id="quote")
    assert served.browser("somebody else").get(str(links[0])).status == 403
    assert browser.get(str(links[0])[:-1] + "7").status == 404


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"preferred": "1"}, "please prefer that one"),
        ({"preferred": "both_good"}, "please prefer that one"),
        ({"comment": "too few words"}, "at least 7 words; there are 3"),
        ({"comment": "word " * 2000}, "At most 4,000 characters"),
        ({"supported_1": "perhaps"}, "choose one of these"),
        ({"plausible_0": ""}, "Please answer this"),
    ],
)
def test_what_a_comparison_needs(served: Served, change: dict[str, str], said: str) -> None:
    here, browser = (
        address(served, "comparison"),
        served.browser(f"hasty {said[:20]} {change}"[:60]),
    )
    page = pass_checks(served, browser, here)
    swapped = is_swapped(served, "comparison")
    wrong = browser.send(here, page.form | as_shown(ALL["comparison"] | change, swapped))
    assert wrong.status == 422
    assert said in wrong.text


def test_a_flagged_question_skips_the_rest(served: Served) -> None:
    for form in ("long-comparison", "minimal"):
        browser = served.browser(f"flagger of {form}")
        here = address(served, form)
        page = pass_checks(served, browser, here)
        assert "Nothing is left" in browser.send(here, page.form | {"flag": "nonsense"}).text


def test_exports_are_read_by_what_reads_records(
    served: Served, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, out = str(folder / "study"), folder / "out.jsonl"
    for name in ("first", "second"):
        browser = served.browser(f"exported {name}")
        here = address(served, "comparison")
        page = pass_checks(served, browser, here)
        if "Submit" in page.text:
            swapped = is_swapped(served, "comparison")
            browser.send(here, page.form | as_shown(ALL["comparison"], swapped))

    def export(experiment: str, kind: str, *more: str) -> None:
        assert cli.main(["rate", "export", study, experiment, kind, str(out), *more]) == 0

    export("comparison", "rated-answers")
    good, bad = records.read(out, RatedAnswer, strict=True)
    assert (good.claim, good.plausible, good.supported) == ("In 1874.", True, True)
    assert (bad.claim, bad.plausible, bad.supported) == ("In spring.", True, False)
    assert good.documents == (Document(PAGE["id"], "Ormsby", TEXT, PAGE["url"]),)
    assert "exported" not in out.read_text(), "no names"
    assert WORDS not in out.read_text(), "no comments unless asked for"
    rules = json.loads((folder / "out.jsonl.rules.json").read_text())
    assert rules["rules"] == {"minimum_seconds": 0.0, "gold_right": 0.0, "surplus": False}
    assert rules["written"] == 2

    export("comparison", "comparisons", "--comments")
    (compared,) = records.read(out, Comparison, strict=True)
    assert compared.preferred == 0.0
    assert compared.supported_and_plausible == (True, False)
    assert WORDS in out.read_text()
    bare = Comparison(
        compared.id,
        compared.question,
        compared.source,
        compared.responses,
        None,
        ratings=compared.ratings,
    )
    assert settle(bare) == compared, "training decides by the same rules"

    export("comparison", "dpo")
    pair = json.loads(out.read_text())
    assert pair["prompt"].endswith("Answer:")
    assert pair["chosen"] == f" %<In 1874.%>%(Ormsby)%[{QUOTE}]%".replace("%>%", ">%")
    assert "In spring." in pair["rejected"]

    export("long-comparison", "comparisons")
    (long,) = records.read(out, Comparison, strict=True)
    first, second = long.responses
    assert isinstance(first, records.LongAnswer)
    assert first.references[0].extract == QUOTE
    assert second == "Nobody knows."

    export("long-comparison", "webgpt")
    from data_pipelines.converters.gold import ConversionReport

    ((_, released),) = read_webgpt_comparisons(out, ConversionReport())
    assert released.answers[0].score == 1.0
    assert released.preferred == 0.0
    assert released.answers[0].quotes == (("Ormsby (towns.example)", QUOTE),)

    export("truthfulqa", "rated-answers")
    (truth,) = records.read(out, RatedAnswer, strict=True)
    assert truth.ratings[0]["truthful"] is False
    assert truth.ratings[0]["informative"] is True
    assert truth.model == "SFT-7"

    export("minimal", "votes")
    assert json.loads(out.read_text().splitlines()[0])["overall"] == "-2"
    capsys.readouterr()
    assert cli.main(["rate", "export", study, "truthfulqa", "dpo", str(out)]) == 1
    assert "items with one answer" in capsys.readouterr().err


def test_a_server_leaves_the_process_s_log_handlers_alone(tmp_path: pathlib.Path) -> None:
    """Among them may be one of absl's, which closes its stream: pytest's own, here."""

    class Handler(logging.Handler):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True
            super().close()

    handler = Handler()
    with serve(study_in(tmp_path)):
        assert not handler.is_closed
