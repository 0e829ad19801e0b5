"""WebCPM's demonstrations, on made-up ones in the documented form."""

import collections
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_pipelines import convert
from data_pipelines.browsing_completions import is_held_out
from gophercite.browser.browsed_answers import cited
from gophercite.browser.episodes import Episode, episode_to_json, read_episodes, replayed
from gophercite.browser.recorded import RecordedWorld
from gophercite.cli import main as gophercite

BRIDGE, RIVER = "http://a.example/bridge", "http://b.example/river#top"
FIRST = "石桥建于1874年，设计者是林安。<br />它有十二个桥拱。" + "桥面很窄，雨天常常封闭。" * 45
SECOND = "1901年一场大火烧毁了<b>桥头</b>的木屋。<br/>后来木屋没有重建。" + "风很大。" * 30
HITS = [
    {
        "title": f"标题{number}",
        "summary": f"摘要{number}。" * 8,
        "href": f"http://x.example/{number}",
    }
    for number in range(4)
]
SEEN = [*HITS, {"title": "石桥", "summary": "关于石桥。", "href": BRIDGE}]


def act(name: str, seen: object = None, **details: object) -> dict[str, Any]:
    return {"action": name, "details": details, "pageContentInViewport": seen, "digests": []}


def demonstration() -> dict[str, Any]:
    """A search, two screens of results, a page of two screens, three digests, one removed."""
    return {
        "question": "石桥是什么时候建的？",
        "actions": [
            act("RECORD_START"),
            act("PRESS_SEARCH", SEEN[:3], keyword=" 石桥  历史 "),
            act("TRIGGER_SCROLL_DOWN", SEEN[3:]),
            act("LOAD_PAGE_DETAIL", FIRST, href=BRIDGE),
            act("ADD_DIGEST", FIRST, text="石桥建于1874年，设计者是林安。"),
            act("TRIGGER_SCROLL_DOWN", SECOND),
            act(
                "ADD_DIGEST",
                SECOND,
                text="1901年一场大火烧毁了<b>桥头</b>的木屋。\n后来木屋没有重建。",
            ),
            act("ADD_DIGEST", SECOND, text="风很大。"),
            act("MERGE_DIGEST", SECOND),
            act("PAGE_GO_BACK", SEEN[3:]),
            act("RECORD_CLOSE", SEEN[3:]),
        ],
        "digests": [
            {
                "datas": [
                    {"desc": "1901年一场大火烧毁了<b>桥头</b>的木屋。\n后来木屋没有重建。"},
                    {"desc": "石桥建于1874年，设计者是林安。"},
                ]
            }
        ],
        "answer": "它建于1874年【1】，后来遭遇火灾<1>。没有证据【2】。",
    }


def converted(tmp_path: Path, *values: object) -> tuple[list[Episode], str]:
    path, out = tmp_path / "data.json", tmp_path / "out"
    path.write_text(json.dumps(values, ensure_ascii=False), "utf-8")
    status = convert.main(["webcpm", str(path), str(out), "--validation", "0", "--test", "0"])
    assert status == 0
    name = out / "demonstrations_train.jsonl.gz"
    return list(read_episodes(name, strict=True)), str(out / "world")


def test_a_demonstration_becomes_an_episode_of_its_world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (episode,), world = converted(tmp_path, demonstration())
    out = capsys.readouterr().out
    actions = [step.action for step in episode.steps]
    assert actions[0] == "Search 石桥  历史"
    assert actions[1:3] == ["Scrolled down 1", "Clicked on link 4"]
    assert actions[3] == "Quote: 石桥建于1874年，设计者是林安。"
    quote = "Quote: 1901年一场大火烧毁了<b>桥头</b>的木屋。 后来木屋没有重建。"
    assert actions[4] == "Scrolled down 1"
    assert actions[-4:-1] == [quote, "Back", "End: Answer"]
    # The answer's 1 is a digest of two quotes, its 2 none.
    assert episode.end.answer == "它建于1874年[2][1]，后来遭遇火灾[2][1]。没有证据。"
    assert cited(episode.end.answer) == (2, 1)
    assert [each.title for each in episode.end.references] == ["石桥", "石桥"]
    for line in (
        "1 actions left out: MERGE_DIGEST",
        "1 quotes left out: removed by the person",
        "1 citations left out: they cite no quote",
        "1 demonstrations_train.jsonl.gz",
        "1 pages of the world",
    ):
        assert line in " ".join(out.split())
    assert not any(step.invalid for step in episode.steps)
    assert (
        gophercite(
            ["validate", str(tmp_path / "out/demonstrations_train.jsonl.gz"), "--kind", "episodes"]
        )
        == 0
    )
    with RecordedWorld(world) as it:
        assert episode_to_json(replayed(it, episode)) == episode_to_json(episode)
        text = it.open(BRIDGE).document.text
        assert text.index("设计者") < text.index("1901年")
        assert "<br" not in text


def test_demonstrations_of_one_question_are_held_out_together(tmp_path: Path) -> None:
    """Their question has one id, which depends only on its text."""
    asked = [f"石桥 Kesh{n}？" for n in range(20)]
    values = [
        demonstration() | {"question": question}
        for each in asked
        for question in (each, each.upper().replace(" ", "  "))
    ]
    episodes, _ = converted(tmp_path, *values)
    assert len({episode.id for episode in episodes}) == 40
    pairs = list(zip(episodes[::2], episodes[1::2], strict=True))
    assert all(one.question_id == other.question_id for one, other in pairs)
    assert len({episode.question_id for episode in episodes}) == 20
    sides = [(is_held_out(one, 0.5), is_held_out(other, 0.5)) for one, other in pairs]
    assert {*sides} == {(True, True), (False, False)}


def test_what_is_clicked_and_quoted_is_on_the_screen(tmp_path: Path) -> None:
    (episode,), _ = converted(tmp_path, demonstration())
    for step in episode.steps[:-1]:
        seen = step.observation.partition("♦Text")[2]
        if step.action.startswith("Clicked"):
            assert f"【{step.action.split()[-1]}†" in seen
        if step.action.startswith("Quote"):
            assert step.action.removeprefix("Quote: ")[:8] in seen


def test_pages_whole_and_results_whole_are_read_where_they_are_there(tmp_path: Path) -> None:
    value = demonstration()
    search, page = value["actions"][1], value["actions"][3]
    search["details"]["result"] = SEEN
    page["details"]["pageMainContent"] = [FIRST[:500], FIRST[500:] + SECOND + "尾声。"]
    del value["actions"][2]
    for action in value["actions"][-2:]:
        action["pageContentInViewport"] = None
    (episode,), world = converted(tmp_path, value)
    assert episode.steps[1].action == "Scrolled down 1"  # added: the link stands below
    with RecordedWorld(world) as it:
        assert it.open(BRIDGE).document.text.endswith("尾声。")


def test_scrolls_are_merged_up_to_three(tmp_path: Path) -> None:
    value = demonstration()
    value["actions"][4:-1] = [
        *(act("TRIGGER_SCROLL_DOWN", f"{number} {4 * SECOND}") for number in range(9)),
        act("TRIGGER_SCROLL_UP", "8"),
        act("TRIGGER_SCROLL_UP", "7"),
        act("ADD_DIGEST", "7", text="石桥建于1874年，设计者是林安。"),
    ]
    (episode,), _ = converted(tmp_path, value)
    scrolls = [step.action for step in episode.steps if step.action.startswith("Scrolled")]
    assert scrolls[1:4] == ["Scrolled down 3", "Scrolled down 3", "Scrolled down 3"]
    assert scrolls[4] == "Scrolled up 2"
    assert set(scrolls[5:]) <= {"Scrolled up 3", "Scrolled up 2", "Scrolled up 1"}  # added


def test_numbers_of_the_answer_are_those_of_the_digests(tmp_path: Path) -> None:
    value = demonstration()
    (both,) = value["digests"]
    value["digests"] = [{"datas": [part]} for part in both["datas"]]
    value["answer"] = "【1】【2】【3】【0】"
    (episode,), _ = converted(tmp_path, value)
    assert episode.end.answer == "[2][1]"
    del value["digests"]
    (tmp_path / "without").mkdir()
    (episode,), _ = converted(tmp_path / "without", value)
    assert episode.end.answer == "[1][2][3]"


def test_who_refuses_to_answer_ends_so(tmp_path: Path) -> None:
    value = demonstration()
    value["actions"] = [*value["actions"][:4], act("RECORD_REJECT")]
    (episode,), _ = converted(tmp_path, value)
    assert (episode.end.end, episode.end.answer) == ("nonsense", None)


def edited(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    value = copy.deepcopy(demonstration())
    change(value)
    return value


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda v: v.pop("question"), "field 'question'"),
        (lambda v: v.update(answer=" "), "field 'answer'"),
        (lambda v: v.update(actions={}), "field 'actions'"),
        (lambda v: v["actions"][1].update(details={}), "'actions[1]': field 'keyword'"),
        (lambda v: v["actions"][3].update(details=None), "'actions[3]': expected an object"),
        (lambda v: v["actions"][2].update(pageContentInViewport=[1]), "'actions[2]': expected"),
        (lambda v: v.update(digests=[{"datas": [{"desc": 1}]}]), "field 'desc'"),
        (
            lambda v: v["actions"][3]["details"].update(href=RIVER),
            "is not among the search results",
        ),
        (
            lambda v: [a["details"].update(text="无") for a in v["actions"][4:7]],
            "none of its quotes",
        ),
        (lambda v: v.update(actions=v["actions"][:1]), "none of its quotes"),
    ],
)
def test_what_cannot_be_converted_is_named_and_counted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], object],
    problem: str,
) -> None:
    episodes, _ = converted(tmp_path, edited(change), demonstration())
    assert [episode.id for episode in episodes] == ["data-1"]
    said = capsys.readouterr()
    assert "1 bad records skipped" in said.out
    assert problem in said.err
    assert "data" in said.err


def test_actions_of_unknown_names_and_without_effect_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = demonstration()
    value["actions"][1:1] = [act("PAGE_GO_BACK"), act("TRIGGER_SCROLL_UP"), act("FIND")]
    value["actions"][-1:-1] = [act("TRIGGER_SCROLL_TO_TOP"), act("TRIGGER_SCROLL_TO_TOP")]
    (episode,), _ = converted(tmp_path, value)
    counts = collections.Counter(step.action for step in episode.steps)
    assert (counts["Top"], counts["Back"]) == (1, 1)
    out = " ".join(capsys.readouterr().out.split())
    for name in (
        "unknown names",
        "PAGE_GO_BACK",
        "TRIGGER_SCROLL_TO_TOP",
        "scrolls past the end of a page",
    ):
        assert f"1 actions left out: {name}" in out


def test_files_of_a_split_and_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [demonstration()] * 2}), "utf-8")
    assert convert.main(["webcpm", str(path), str(tmp_path / "out")]) == 0
    assert convert.main(["webcpm", str(path), str(tmp_path / "out")]) == 1
    assert "already exists" in capsys.readouterr().err
    path.write_text('{"data": {}}')
    assert convert.main(["webcpm", str(path), str(tmp_path / "new")]) == 1
    assert "is not WebCPM data" in capsys.readouterr().err
    path.write_text("[]")
    assert convert.main(["webcpm", str(path), str(tmp_path / "new")]) == 1
    assert not (tmp_path / "new").exists()
