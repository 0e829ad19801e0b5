"""Sessions and forms on real servers: whose they are, and that none that ends loses a text."""

import pathlib
from collections.abc import Iterator

import argon2
import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher

from gophercite import cli
from gophercite.rating_site import admin_pages
from gophercite.rating_site.security import _NOBODYS, Signer, hash_password, is_password
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.schema import audit, drafts, ratings
from gophercite.ratings.study import Study
from tests.ratings.served import Browser, Page, Served, serve
from tests.ratings.test_rate_command import comparison, write

PASSWORD = "correct horse battery"
VOTE = {
    "plausible_0": "yes",
    "supported_0": "yes",
    "plausible_1": "yes",
    "supported_1": "yes",
    "preferred": "both_good",
    "comment": "one two three four five six seven",
}


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[Served]:
    study = study_with_two_items(tmp_path, "study")
    with serve(study, logins_a_minute=1000) as served:
        yield served
    study.store.close()


def study_with_two_items(folder: pathlib.Path, name: str, *more: str) -> Study:
    file = write(folder / f"{name}.jsonl", comparison("c0"), comparison("c1"))
    options = ["--checks", "none", "--set", "minimum_seconds=0", *more]
    assert cli.main(["rate", "new", str(folder / name), file, *options]) == 0
    study = Study(folder / name)
    admin_pages.set_password(study.store, "root", PASSWORD)
    return study


def logged_in(served: Served, browser: Browser) -> Page:
    form = browser.get("/admin/login").form
    return browser.send("/admin/login", form | {"name": "root", "password": PASSWORD})


def votes(served: Served) -> list[str]:
    """The comments of all votes."""
    with served.study.store.reading() as connection:
        rows = connection.execute(sa.select(ratings.c["values"]).order_by(ratings.c.id)).scalars()
        return [str(values["comment"]) for values in rows]


def paths_of(served: Served, action: str) -> list[str]:
    """The paths in the audit log."""
    with served.study.store.reading() as connection:
        query = sa.select(audit.c.details).where(audit.c.action == action)
        return [str(details["path"]) for details in connection.execute(query).scalars()]


# --- Whose a session is ---


def test_the_cookie_of_another_study_is_no_hindrance(
    served: Served, tmp_path: pathlib.Path
) -> None:
    """Cookies do not distinguish ports, so a browser sends those of all studies to each."""
    other = study_with_two_items(tmp_path, "other")
    browser = served.browser("ada")
    with serve(other) as second:
        assert "Log out" in logged_in(served, browser).source
        browser.client.base_url = second.url
        assert browser.get(second.link("ada")).status == 200
        assert "Log out" in logged_in(second, browser).source
        assert paths_of(second, "forged-session") == []
        browser.client.base_url = served.url
        assert browser.get("/").status == browser.get("/admin").status == 200, "both stay open"
    other.store.close()


def test_a_cookie_that_can_not_be_read_is_noted_and_is_no_session(served: Served) -> None:
    browser = served.browser("ada")
    for cookie in browser.client.cookies.jar:
        cookie.value = "W10.x"
    assert browser.get("/").status == 401
    assert paths_of(served, "forged-session") == ["/"]
    link = served.link("ada")
    assert browser.get(link).status == 200, "the link works all the same"
    assert paths_of(served, "forged-session") == ["/", "/r/…"]


def test_no_token_is_in_the_audit_log(tmp_path: pathlib.Path) -> None:
    study = study_with_two_items(tmp_path, "study")
    with serve(study, requests_a_minute=4) as served:
        browser, link = served.browser(), served.link("ada")
        assert browser.get("/r/forged").status == 403
        for _ in range(4):
            status = served.browser().get(link).status
        assert status == 429
        assert paths_of(served, "forged-link") == ["/r/…"]
        assert set(paths_of(served, "too-many-requests")) == {"/r/…"}
    with serve(study) as served:
        assert served.browser("ada").get("/e/1/page/forged/0/0").status == 403
        assert paths_of(served, "forged-ticket") == ["/e/1/page/…"]
    study.store.close()


def test_an_administrator_s_login_leaves_the_rater_s_session_alone(served: Served) -> None:
    browser = served.browser("ada")
    page = browser.get("/e/1")
    assert "Log out" in logged_in(served, browser).source
    assert browser.send("/e/1", page.form | VOTE).status == 200
    assert votes(served) == [VOTE["comment"]]
    browser.send("/admin/logout", browser.get("/admin").form)
    assert browser.get("/admin").status == 401
    assert browser.get("/").status == 200


def test_a_new_password_ends_the_administrators_sessions(served: Served) -> None:
    browser = served.browser()
    logged_in(served, browser)
    assert browser.get("/admin").status == 200
    admin_pages.set_password(served.study.store, "root", PASSWORD + " staple")
    assert browser.get("/admin").status == 401
    assert "wrong" in logged_in(served, browser).text


def test_logging_out_ends_the_session_for_whoever_has_its_cookie(served: Served) -> None:
    browser, thief, other = served.browser(), served.browser(), served.browser()
    for each in (browser, other):
        logged_in(served, each)
    for cookie in browser.client.cookies.jar:
        thief.client.cookies.set(cookie.name, str(cookie.value))
    form = thief.get("/admin").form
    assert browser.send("/admin/logout", browser.get("/admin").form).status == 200
    assert thief.get("/admin").status == 401
    assert thief.send("/admin/logout", form).status == 401
    assert paths_of(served, "void-session") == ["/admin", "/admin/logout"]
    with serve(served.study) as again:  # as after a restart, or on another server of the study
        thief.client.base_url = again.url
        assert thief.get("/admin").status == 401
    assert other.get("/admin").status == 200, "a session of another browser goes on"
    logged_in(served, browser)
    page = browser.get("/admin")
    assert page.status == 200, "a new session of the same browser begins"
    assert "logged-out" in page.text


# --- What a form is bound to ---


def test_a_form_can_be_sent_after_the_link_was_opened_again(served: Served) -> None:
    browser = served.browser("ada")
    page = browser.get("/e/1")
    assert browser.get(served.link("ada")).status == 200, "in another tab"
    assert browser.send("/e/1/draft", page.form | VOTE).source == '{"saved":true}'
    assert browser.send("/e/1", page.form | VOTE).status == 200
    assert votes(served) == [VOTE["comment"]]
    assert paths_of(served, "forged-form") == []


def test_a_form_of_a_link_that_was_replaced_is_kept_and_shown_again(served: Served) -> None:
    """It was opened with a link that others may have, so the rater has to send it again."""
    browser = served.browser("ada")
    page = browser.get("/e/1")
    add_rater(served.study.store, "ada", "super", new_link=True)
    void = browser.send("/e/1", page.form | VOTE)
    assert void.status == 403
    assert VOTE["comment"] in void.text, "the text is shown, to be copied"
    assert browser.send("/e/1/draft", page.form | VOTE).status == 403
    assert drafts_of(served) == [], "what has a void link changes nothing"
    assert browser.get(served.link("ada")).status == 200
    again = browser.send("/e/1", page.form | VOTE)
    assert "link was replaced" in again.text
    assert {name: again.form[name] for name in VOTE} == VOTE
    assert votes(served) == []
    assert drafts_of(served) == [VOTE["comment"]]
    assert "link was replaced" not in browser.send("/e/1", again.form).text
    assert votes(served) == [VOTE["comment"]]


def test_a_check_of_a_link_that_was_replaced_is_shown_again(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    assert cli.main(["rate", "new", str(tmp_path / "study"), file]) == 0
    study = Study(tmp_path / "study")
    with serve(study) as served:
        browser = served.browser("ada")
        page = browser.get("/e/1")
        add_rater(study.store, "ada", "super", new_link=True)
        browser.get(served.link("ada"))
        again = browser.send("/e/1", page.form | VOTE)
        assert "Practice 1 of 4" in again.text
        assert "link was replaced" in again.text
        assert drafts_of(served) == []
        assert "The right answers" in browser.send("/e/1", again.form).text
    study.store.close()


def test_forms_are_bound_to_their_rater(served: Served) -> None:
    """Also where the ticket is right, and for what was never signed here."""
    ada, bob = served.browser("ada"), served.browser("bob")
    mine, theirs = ada.get("/e/1").form, bob.get("/e/1").form
    login = served.browser().get("/admin/login").form
    other_key = Signer("another study's secret")
    session = other_key.open_link(other_key.link(1, 0, 2e9))
    tokens = (theirs["form"], login["form"], mine["ticket"], other_key.form(session), "", "x")
    for token in tokens:
        assert ada.send("/e/1", mine | VOTE | {"form": token}).status == 403
        assert ada.send("/e/1/draft", mine | VOTE | {"form": token}).status == 403
    assert paths_of(served, "forged-form") == ["/e/1", "/e/1/draft"] * len(tokens)
    assert votes(served) == drafts_of(served) == []


def drafts_of(served: Served) -> list[str]:
    """The comments of all drafts."""
    with served.study.store.reading() as connection:
        rows = connection.execute(sa.select(drafts.c.form)).scalars()
        return [str(form["comment"]) for form in rows]


def test_passwords_cost_what_the_library_recommends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's, too: how long a refusal takes does not say whether the name exists."""
    monkeypatch.setattr(argon2, "PasswordHasher", PasswordHasher)  # as it is outside these tests
    hashed = hash_password(PASSWORD)
    assert not PasswordHasher().check_needs_rehash(hashed)
    assert not PasswordHasher().check_needs_rehash(_NOBODYS)
    assert is_password(PASSWORD, hashed)
    assert not is_password(PASSWORD + "s", hashed)
