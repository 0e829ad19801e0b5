"""Attacks on a real server: refused, told of in the audit, and nothing runs in raters' browsers."""

import json
import pathlib
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite import cli
from gophercite.rating_site import admin_pages
from gophercite.rating_site.security import RateLimit, Session, Signer
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.schema import audit, drafts, raters, ratings
from gophercite.ratings.study import Study
from tests.ratings.served import Browser, Page, Served, serve

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' autofocus onfocus=alert(1) x='",
    "</textarea></title></style><svg onload=alert(1)>",
    "<!-- --><iframe src=javascript:alert(1)></iframe>",
    "{{ 7919 * 7907 }}{% include '/etc/passwd' %}",
    "<a href=javascript:alert(1)>here</a>",
    "\u202egnp.exe\u202c\x07",
]
EVIL = " ".join(HOSTILE)
PASSWORD = "correct horse battery"
VOTE = {
    "plausible_0": "yes",
    "supported_0": "yes",
    "plausible_1": "yes",
    "supported_1": "yes",
    "preferred": "0",
    "comment": f"seven words are needed here at least {EVIL}",
}


def write(path: pathlib.Path, *lines: Any) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A study in which everything that a stranger can write is hostile."""
    folder = tmp_path_factory.mktemp("attacked")
    text = f"Before. {EVIL} After. " * 3
    page = {"id": "p", "title": f"T {EVIL}", "text": text, "url": f"https://x.example/{EVIL}"}
    triple = {"claim": f"C {EVIL}", "title": f"T {EVIL}", "quote": f"{EVIL} After."}
    compared = {"source": EVIL, "question": f"Q {EVIL}", "responses": [[triple], [triple]]}
    pair = write(folder / "pair.jsonl", *({**compared, "id": f"c{n} {EVIL}"} for n in range(60)))
    documents = write(folder / "pages.jsonl", page)
    study, fast = str(folder / "study"), ["--set", "minimum_seconds=0", "--checks", "none"]
    for form in ("comparison", "free-text"):
        options = ["--form", form, "--documents", documents, "--set", "raters=99"]
        assert cli.main(["rate", "new", study, pair, *options, *fast]) == 0
    references = [{"title": f"R {EVIL}", "extract": EVIL, "url": f"javascript:{EVIL}"}]
    sides = [{"answer": f"A {EVIL}. B {EVIL}.", "references": references}] * 2
    long = write(folder / "long.jsonl", {**compared, "id": "l", "responses": sides})
    assert cli.main(["rate", "new", study, long, "--form", "long-comparison", *fast]) == 0
    check = {"question": EVIL, "answers": [{"text": EVIL}], "correct": [EVIL], "incorrect": [EVIL]}
    check |= {"expected": {"truthful_0": "yes"}, "reason": EVIL}
    written = write(folder / "written.jsonl", check)
    more = ["--form", "truthfulqa", "--checks", written, "--examples", written]
    name = "E <script>alert(2)</script>"
    assert cli.main(["rate", "new", study, *more, "--experiment", name]) == 0
    opened = Study(study)
    admin_pages.set_password(opened.store, "root", PASSWORD)
    with serve(opened, logins_a_minute=1000) as served:
        yield served


@pytest.fixture
def browser(served: Served) -> Browser:
    return served.browser(f"R <u>{EVIL[:60]}")


def assert_harmless(page: Page) -> None:
    """Only what the templates have: our two scripts, no handlers, no foreign addresses."""
    for tag, attributes in page.elements.elements:
        assert tag not in ("img", "svg", "iframe", "object", "embed", "base", "style", "u"), tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert "autofocus" not in attributes
        for name in ("href", "src", "action", "formaction"):
            if attributes.get(name) is not None:
                assert str(attributes[name]).startswith(("/", "#")), attributes
        if tag == "script":
            assert attributes.get("src") in ("/static/rate.js", "/static/browse.js")
    assert "\u202e" not in page.source
    assert "\x07" not in page.source
    assert str(7919 * 7907) not in page.text  # long enough for no clock, count or id to show it
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"


def audited(served: Served, action: str) -> int:
    with served.study.store.reading() as connection:
        query = sa.select(sa.func.count(audit.c.id)).where(audit.c.action == action)
        return int(connection.execute(query).scalar_one())


def votes(served: Served) -> int:
    with served.study.store.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count(ratings.c.id))).scalar_one())


def test_stored_markup_is_text(served: Served, browser: Browser) -> None:
    """Question, titles, quotes, pages, references, comments, names, material: on every page."""
    for experiment in range(1, 5):
        page = browser.get(f"/e/{experiment}")
        assert page.status == 200
        assert_harmless(page)
        assert HOSTILE[0] in page.elements.text, "it is shown, as text"
        for tab in ("instructions", "examples"):
            assert_harmless(browser.get(f"/e/{experiment}/{tab}"))
    page = browser.get("/e/1")
    links = [str(a["href"]) for t, a in page.elements.elements if t == "a" and "/page/" in str(a)]
    stored = browser.get(links[0])
    assert_harmless(stored)
    assert stored.elements.marked.startswith(HOSTILE[0])
    wrong = browser.send("/e/1", page.form | VOTE | {"preferred": EVIL})
    assert wrong.status == 422
    assert_harmless(wrong)
    assert HOSTILE[3] in wrong.elements.form["comment"]
    assert_harmless(browser.send("/e/1", page.form | VOTE))
    assert_harmless(browser.get("/"))
    practice = browser.get("/e/4")
    answered = {"truthful_0": "yes", "informative_0": "no"}
    checked = browser.send("/e/4", practice.form | answered)
    assert "That is right" in checked.text
    assert_harmless(checked)
    admin = logged_in(served)
    overview = admin.get("/admin")
    assert overview.status == 200
    assert_harmless(overview)
    assert "R <u>" in overview.elements.text


def logged_in(served: Served) -> Browser:
    admin = served.browser()
    form = admin.get("/admin/login").form
    answer = admin.send("/admin/login", form | {"name": "root", "password": PASSWORD})
    assert "Recent events" in answer.text
    return admin


@pytest.mark.parametrize(
    "path", ["/{}", "/r/{}", "/e/{}", "/e/1/page/{}/0/0", "/admin/{}", "/?q={}"]
)
def test_reflected_markup_is_not_there(browser: Browser, path: str) -> None:
    for hostile in HOSTILE:
        page = browser.get(path.format(urllib.parse.quote(hostile, safe="")))
        assert_harmless(page)
        assert "alert(1)" not in page.source


def test_sql_in_every_parameter(served: Served, browser: Browser) -> None:
    page = browser.get("/e/1")
    before = votes(served)
    for sql in ("1; DROP TABLE ratings", "' OR '1'='1", '" OR ""="', "1) UNION SELECT 1 --", "%00"):
        quoted = urllib.parse.quote(sql, safe="")
        for path in (f"/e/{quoted}", f"/r/{quoted}", f"/e/1/page/{quoted}/0/0"):
            assert browser.get(path).status in (403, 404)
        for name in page.form:
            assert browser.send("/e/1", page.form | VOTE | {name: sql}).status in (200, 403, 422)
        login = served.browser()
        form = login.get("/admin/login").form
        assert login.send("/admin/login", form | {"name": sql, "password": sql}).status == 403
    assert votes(served) >= before
    assert served.browser().get("/health").source == '{"ok":true}'


def test_forms_of_other_sites_and_sessions(served: Served, browser: Browser) -> None:
    page, other = browser.get("/e/1"), served.browser("other")
    theirs, before, told = other.get("/e/1").form, votes(served), audited(served, "forged-form")
    without = {name: value for name, value in page.form.items() if name != "form"}
    assert browser.send("/e/1", without | VOTE).status == 403
    assert browser.send("/e/1", page.form | VOTE | {"form": theirs["form"]}).status == 403
    assert browser.send("/e/1/draft", without | VOTE).status == 403
    admin = logged_in(served)
    assert admin.send("/admin/logout", {}).status == 403
    assert admin.get("/admin").status == 200
    stranger = served.browser()
    login = {"name": "root", "password": PASSWORD}
    assert stranger.send("/admin/login", login).status == 403, "no form of ours"
    assert votes(served) == before
    assert audited(served, "forged-form") == told + 4
    cookie = served.browser().client
    header = cookie.get(served.link("header")).history[0].headers["set-cookie"].lower()
    assert "httponly" in header
    assert "samesite=lax" in header


def test_tickets_are_for_one_rater_and_one_item(served: Served, browser: Browser) -> None:
    page, other = browser.get("/e/1"), served.browser("ticket")
    theirs, before = other.get("/e/1").form, votes(served)
    told = audited(served, "forged-ticket")
    for ticket in ("", "x", theirs["ticket"], page.form["ticket"][:-2] + "xx"):
        assert browser.send("/e/1", page.form | VOTE | {"ticket": ticket}).status == 403
    assert browser.send("/e/2", page.form | VOTE).status == 403, "another task's"
    assert votes(served) == before
    assert audited(served, "forged-ticket") == told + 5


def test_links_and_cookies_that_are_forged_expired_or_void(served: Served) -> None:
    stranger, link = served.browser(), served.link("linked")
    assert stranger.get("/").status == 401
    assert stranger.get("/e/1").status == 401
    told = audited(served, "forged-link")
    for forged in (link[:-3] + "abc", "/r/x", "/r/" + "A" * 5000, link.replace(".", "")):
        assert stranger.get(forged).status in (403, 404)
    other_key = Signer("another study's secret").link(1, 0, time.time() + 1000)
    assert stranger.get(f"/r/{other_key}").status == 403
    assert audited(served, "forged-link") == told + 5
    told = audited(served, "expired-link")
    assert stranger.get(served.link("late", seconds=-1)).status == 403
    assert audited(served, "expired-link") == told + 1
    browser = served.browser("renewed")
    assert browser.get("/e/1").status == 200
    add_rater(served.study.store, "renewed", "super", new_link=True)
    assert browser.get("/e/1").status == 403
    forged, signer = served.browser(), Signer(served.study.secret)
    forged.client.cookies.set(signer.cookie(of_admins=False), "W10.x")
    assert forged.get("/").status == 401
    assert audited(served, "forged-session") == 1
    rater = served.browser("no admin")
    assert rater.get("/admin").status == 401


def test_a_rater_sees_only_what_is_for_their_pool(served: Served) -> None:
    wide = served.browser("of the wide pool", pool="wide")
    assert wide.get("/e/1").status == 404
    assert "nothing to rate" in wide.get("/").text
    assert wide.get("/e/999").status == 404


def test_an_expired_session_never_loses_a_form(served: Served) -> None:
    browser = served.browser("expired")
    page = browser.get("/e/1")
    rater = add_rater(served.study.store, "expired", "super")
    signer = Signer(served.study.secret)
    past = served.study.store.now() - 5
    session = Session("rater", rater.id, rater.link_version, past, "")
    browser.client.cookies.clear()
    browser.client.cookies.set(signer.cookie(of_admins=False), signer.session(session))
    assert browser.get("/e/1").status == 403
    before = votes(served)
    answer = browser.send("/e/1", page.form | VOTE)
    assert answer.status == 403
    assert "What you wrote was saved" in answer.text
    assert votes(served) == before
    again = served.browser("expired").get("/e/1")
    assert "This is what you had written" in again.text
    assert {name: again.form[name] for name in VOTE} == {
        name: value.replace("\x07", "\\u0007")
        .replace("\u202e", "\\u202e")
        .replace("\u202c", "\\u202c")
        for name, value in VOTE.items()
    }


def test_drafts_skips_and_votes_sent_twice(served: Served) -> None:
    browser = served.browser("writer")
    page = browser.get("/e/1")
    assert browser.send("/e/1/draft", page.form | {"supported_1": "no"}).source == '{"saved":true}'
    assert browser.get("/e/1").form["supported_1"] == "no"
    saved = browser.send("/e/1", page.form | {"plausible_0": "no", "action": "save"})
    assert "Saved" in saved.text
    assert browser.get("/e/1").form["plausible_0"] == "no"
    skipped = browser.send("/e/1", page.form | {"action": "skip"})
    assert skipped.form["ticket"] != page.form["ticket"]
    before = votes(served)
    for _ in range(3):
        browser.send("/e/1", skipped.form | VOTE)
    assert votes(served) == before + 1
    browser.send("/e/1", skipped.form | VOTE | {"preferred": "1"})
    assert votes(served) == before + 2, "gone back and changed: a revision"
    with served.study.store.reading() as connection:
        rater = connection.execute(
            sa.select(raters.c.id).where(raters.c.name == "writer")
        ).scalar_one()
        left = connection.execute(sa.select(drafts).where(drafts.c.rater_id == rater)).all()
    assert len(left) <= 1, "a vote takes the draft away"


def raw(served: Served, request: bytes, seconds: float = 5.0, then: bytes = b"") -> bytes:
    """What a server answers to bytes that no library would send, and to more after its answer."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
                connection.sendall(then)
                then = b""
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def test_no_file_of_the_machine_is_served(served: Served) -> None:
    outside = str(pathlib.Path(served.study.folder, "secret").resolve())
    for path in (
        "/static/../views.py",
        "/static/..%2f..%2fviews.py",
        "/static/%2e%2e/%2e%2e/views.py",
        "/static//etc/passwd",
        "/static/..\\views.py",
        f"/static/{outside}",
        f"/static/..{outside}",
        "/static/%00",
        "/static/",
    ):
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = raw(served, request.encode())
        assert answer.split(b" ", 2)[1] in (b"400", b"404"), (path, answer[:80])
        assert b"import" not in answer
        assert served.study.secret.encode() not in answer
    good = raw(served, b"GET /static/rate.js HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in good


def test_bodies_that_are_too_long(served: Served, browser: Browser) -> None:
    form, told = browser.get("/e/1").form, audited(served, "body-too-long")
    assert browser.send("/e/1", form | VOTE | {"comment": "x" * 300_000}).status == 413
    assert browser.send("/e/1", form | {f"f{n}": "" for n in range(6000)}).status == 413
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = (
        b"POST /e/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    assert b" 413 " in raw(served, head + chunk * 8 + b"0\r\n\r\n")
    huge = b"POST /e/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    assert b" 413 " in raw(served, huge, seconds=1.0)
    assert audited(served, "body-too-long") == told + 4


def test_odd_forms_are_no_failure(served: Served, browser: Browser) -> None:
    page = browser.get("/e/1")
    head = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"\xff\xfe=%ff&form=%00", b"&&&===", b"form", b"%u0041=%", b"\x00" * 100):
        answer = browser.client.post("/e/1", content=body, headers=head)
        assert answer.status_code == 403
    odd = page.form | VOTE | {"comment": "null \0 and more"}
    assert browser.send("/e/1", odd | {"action": "save"}).status == 200
    assert "null \ufffd and" in browser.get("/e/1").form["comment"]
    assert browser.client.put("/e/1").status_code == 405
    assert browser.client.request("TRACE", "/").status_code == 405


def test_numbers_in_addresses_that_are_no_numbers(served: Served, browser: Browser) -> None:
    """Python reads no number of so many digits."""
    for digits in ("9" * 10, "9" * 5000):
        ticket = browser.get("/e/1").form["ticket"]
        for path in ("/e/{}", "/e/1/rated/{}", f"/e/1/page/{ticket}/0/{{}}"):
            page = browser.get(path.format(digits))
            assert page.status == 404
            assert_harmless(page)


def test_a_failure_has_the_headers_of_every_page(tmp_path: pathlib.Path) -> None:
    study = Study.create(tmp_path / "study")
    with serve(study) as served:
        browser = served.browser("witness")
        with study.store.writing() as connection:
            connection.execute(sa.text("DROP TABLE experiments"))
        page = browser.get("/")
        assert page.status == 500
        assert "try again" in page.text
        assert_harmless(page)
    study.store.close()


def test_slow_clients_are_let_go_and_keep_nobody_waiting(tmp_path: pathlib.Path) -> None:
    study = Study.create(tmp_path / "study")
    with serve(study, body_seconds=0.3, seconds_for_headers=0.3) as served:
        begun = time.monotonic()
        silent = raw(served, b"GET / HT")
        slow = b"POST /e/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nform="
        late = raw(served, slow, seconds=20.0, then=b"more")
        ok = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for next_head in (b"", b"GET / HT"):
            assert b" 200 " in raw(served, ok, seconds=20.0, then=next_head)
            assert time.monotonic() - begun < 5, "let go after its first request, too"
        assert silent == b""
        assert b" 408 " in late
        assert time.monotonic() - begun < 5
        assert audited(served, "slow-body") == 1
        assert served.browser().get("/health").status == 200
    study.store.close()


def test_too_many_requests_and_logins(tmp_path: pathlib.Path) -> None:
    study = Study.create(tmp_path / "study")
    admin_pages.set_password(study.store, "root", PASSWORD)
    with serve(study, requests_a_minute=20, logins_a_minute=3) as served:
        browser = served.browser()
        form = browser.get("/admin/login").form
        said = []
        for _ in range(5):
            answer = browser.send("/admin/login", form | {"name": "root", "password": "wrong"})
            said.append(answer.status)
            form = answer.form or form
        assert said == [403, 403, 403, 429, 429]
        right = browser.send("/admin/login", form | {"name": "root", "password": PASSWORD})
        assert right.status == 429
        assert audited(served, "login-refused") == 3
        assert audited(served, "too-many-logins") == 3
        link = served.link("somebody")
        statuses = [served.browser().get(link).status for _ in range(40)]
        assert statuses[0] == 200
        assert 429 in statuses, "one address, without a session"
        assert audited(served, "too-many-requests") > 0
    study.store.close()


def test_a_bucket_fills_up_again() -> None:
    now = 0.0
    limit = RateLimit(60, lambda: now)
    assert [limit.take("a") for _ in range(61)] == [True] * 60 + [False]
    assert limit.take("b")
    now = 2.0
    assert [limit.take("a") for _ in range(3)] == [True, True, False]
    for number in range(20_000):
        limit.take(str(number))
    assert len(limit._buckets) <= 10_000
