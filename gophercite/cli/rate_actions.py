"""The actions of `gophercite rate`."""

import argparse
import dataclasses
import getpass
import itertools
import pathlib
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from gophercite import records
from gophercite.cli.browsed import check_worlds, environment_from
from gophercite.cli.output import DONE, FAILED, RefusedError, note, print_json, print_text
from gophercite.cli.rate_inputs import items_from, records_of, settings_from, written_from
from gophercite.documents import Document
from gophercite.rating_site import admin_pages
from gophercite.rating_site.app import server
from gophercite.rating_site.entries import Pages, Shown
from gophercite.rating_site.entries import parse as parse_shown
from gophercite.rating_site.security import Signer
from gophercite.rating_site.site import Options
from gophercite.rating_site.viewer import write_viewer
from gophercite.ratings import assignment, quality, reports
from gophercite.ratings.adjudication import adjudicate
from gophercite.ratings.browsed_worlds import environment_of, keep_environment
from gophercite.ratings.counting import Rules
from gophercite.ratings.experiments import (
    Experiment,
    Rater,
    add_rater,
    create_experiment,
    experiment_named,
    experiments,
    rater_named,
)
from gophercite.ratings.export import Exporter
from gophercite.ratings.imports import import_votes
from gophercite.ratings.items import add_items
from gophercite.ratings.loading import Loaded
from gophercite.ratings.study import Study, study_around
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted

_SHOWN_ERRORS = 20
_LEAST_PASSWORD, _LONGEST_PASSWORD = 10, 1000  # characters; a form is limited, too
_DAY = 86400  # seconds


def _new(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    name = options.experiment or options.form
    environment = environment_from(options, name)
    loaded = items_from(options, options.form, as_gold=options.screening)
    written = written_from(options, settings)
    if options.files and not loaded.items:
        raise RefusedError("the files contain nothing to rate" + _problems(loaded))
    folder = pathlib.Path(options.study)
    if (folder / "study.json").exists():
        if options.database:
            raise RefusedError(f"--database: {folder} already has its database")
        study = Study(folder)
    else:
        study = Study.create(folder, options.database)
    with study.store.writing() as connection:  # all or nothing: half of it could not be completed
        experiment = create_experiment(study.store, name, options.form, options.pool, settings)
        if environment is not None:
            keep_environment(connection, experiment, environment)
        added, _, errors = add_items(study.store, experiment, [*loaded.items, *written])
    loaded.errors += errors
    result = {
        "study": str(folder),
        "experiment": name,
        "form": options.form,
        "pool": options.pool,
        "items": added - len(written),
    }
    said = f"{folder}: experiment {name!r} with {counted(added - len(written), 'item')}"
    return _say(options, result | _json_of(loaded), said, loaded)


def _add(options: argparse.Namespace) -> int:
    study, experiment = _open(options)
    loaded = items_from(options, experiment.interface)
    if options.gold and not experiment.settings.gold_every:
        raise RefusedError(
            f"--gold: the setting gold_every of {experiment.name!r} is 0, so that raters never get "
            "gold; make an experiment with `gophercite rate new … --gold FILE`"
        )
    added, there, errors = add_items(study.store, experiment, loaded.items)
    loaded.errors += errors
    result = {"experiment": experiment.name, "added": added, "there": there}
    said = f"{added} items added to {experiment.name!r}; {there} were already there"
    return _say(options, result | _json_of(loaded), said, loaded)


def _serve(options: argparse.Namespace) -> int:
    study = Study(options.study)
    check_worlds(study)
    url = options.url or ""
    guards = Options(
        requests_a_minute=options.requests_a_minute,
        is_https=url.startswith("https://"),
        behind_proxy=bool(url),
    )
    is_ipv6 = ":" in options.host
    host = f"[{options.host}]" if is_ipv6 else options.host  # as addresses have it
    try:
        listening = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen()  # who follows a printed link at once waits for the server to be there
    except OSError as error:
        raise RefusedError(f"{host}:{options.port}: {error.strerror}") from None
    port = listening.getsockname()[1]
    url = url or f"http://{host}:{port}"
    if options.invite:
        with study.store.reading() as connection:
            known = experiments(connection)
        if not known:
            raise RefusedError("there is no experiment yet to invite raters to")
        rater = add_rater(study.store, options.invite, known[-1].pool)
        print_text(f"{rater.name}: {_link(study, url, rater.id, rater.link_version, 14)}")
    print_text(f"serving {options.study} at {url}; Ctrl-C ends it")
    sys.stdout.flush()
    server(study, options.host, port, guards).run(sockets=[listening])
    return DONE


def _invite(options: argparse.Namespace) -> int:
    study = Study(options.study)
    url, links = options.url or "http://127.0.0.1:8000", {}
    with study.store.writing():  # all or none: where a link becomes void, the new one is printed
        for name in options.names:
            rater = add_rater(study.store, name, options.pool, new_link=options.new_link)
            links[name] = _link(study, url, rater.id, rater.link_version, options.days)
    if options.json:
        print_json(links)
    else:
        print_text("\n".join(f"{name}: {link}" for name, link in links.items()))
    return DONE


def _link(study: Study, url: str, rater_id: int, version: int, days: int) -> str:
    token = Signer(study.secret).link(rater_id, version, study.store.now() + days * _DAY)
    return f"{url.rstrip('/')}/r/{token}"


def _status(options: argparse.Namespace) -> int:
    study = Study(options.study)
    with study.store.reading() as connection:
        chosen = (
            [experiment_named(connection, options.experiment)]
            if options.experiment
            else experiments(connection)
        )
        found = [reports.report(connection, each) for each in chosen]
    if options.json:
        print_json(
            [{**dataclasses.asdict(each), "experiment": each.experiment.name} for each in found]
        )
        return DONE
    lines = []
    for each in found:
        here = each.experiment
        lines += [f"{here.name}: {here.interface}, pool {here.pool}"]
        lines += [f"  {each.progress}"]
        lines += [
            f"  {row.name}: agreement {row.percent} %, alpha {row.alpha}, {row.items} items"
            for row in each.agreement
        ]
        lines += [
            f"  rater {row.name}: {row.votes} votes, {row.seconds} s, checks {row.checks}, "
            f"gold {row.gold}, counts: {row.counts}"
            for row in each.work
        ]
    print_text("\n".join(lines) or "there is no experiment yet")
    return DONE


def _undo(options: argparse.Namespace) -> int:
    study = Study(options.study)
    with study.store.writing() as connection:
        rater = rater_named(connection, options.name)
        here = experiment_named(connection, options.experiment) if options.experiment else None
        now = study.store.now()
        if options.redo:
            said, counts = _readmit(connection, now, rater, here)
        else:
            id = here.id if here else None
            assignment.exclude(connection, now, rater.id, id, options.reason, "command")
            said, counts = f"no longer count {_within(here)}", False
    said = f"{rater.name}'s votes {said}"
    return _say(options, {"rater": rater.name, "counts": counts}, said)


def _readmit(
    connection: sa.Connection, now: float, rater: Rater, here: Experiment | None
) -> tuple[str, bool]:
    """Lifts exclusions; returns what holds for the votes now, and whether all of them count."""
    lifted = assignment.readmit(connection, now, rater.id, here.id if here else None, "command")
    left = assignment.excluded_from(connection, rater.id)
    names = [repr(each.name) for each in experiments(connection) if each.id in left]
    if here is not None and None in left:
        advice = "the rater is excluded from all experiments; to lift that, omit --experiment"
        said = f"still don't count {_within(here)}: {advice}"
    elif here is None and names:
        advice = f"the rater is excluded from {', '.join(names)}; to lift that, add --experiment"
        said = f"count again, but not everywhere: {advice}"
    else:
        advice, said = "", f"count again {_within(here)}"
    if not lifted:
        raise RefusedError(f"{rater.name}: {advice or 'the votes already count'}")
    return said, not advice


def _within(experiment: Experiment | None) -> str:
    return f"in {experiment.name!r}" if experiment else "in all experiments"


def _promote(options: argparse.Namespace) -> int:
    study, experiment = _open(options)
    with study.store.writing() as connection:
        now = study.store.now()
        found = quality.promote(connection, now, experiment, options.least, options.pool)
        names = {
            row.id: row.name for row in connection.execute(sa.text("SELECT id, name FROM raters"))
        }
    rows = [
        {
            "rater": names[each.rater_id],
            "rated": each.rated,
            "passed": each.passed,
            **each.agreement,
        }
        for each in found
    ]
    if options.json:
        print_json(rows)
        return DONE
    for each in found:
        shares = ", ".join(
            f"{kind} {'–' if value is None else f'{100 * value:.0f} %'}"
            for kind, value in each.agreement.items()
        )
        print_text(f"{names[each.rater_id]}: {'passed' if each.passed else 'not passed'}; {shares}")
    print_text(f"{sum(each.passed for each in found)} of {len(found)} moved to {options.pool!r}")
    return DONE


def _export(options: argparse.Namespace) -> int:
    study, experiment = _open(options)
    judge = None
    if options.adjudicated_by:
        with study.store.reading() as connection:
            judge = experiment_named(connection, options.adjudicated_by)
    try:
        refuse_overwriting([options.out, f"{options.out}.rules.json"], study.files)
    except ValueError as error:
        raise RefusedError(str(error)) from None
    rules = Rules(options.minimum_seconds, options.gold_right, options.surplus)
    exporter = Exporter(
        study.store,
        study.secret,
        experiment,
        rules,
        comments=options.comments,
        adjudicated_by=judge,
    )
    done = exporter.write(options.kind, options.out)
    result: dict[str, Any] = {}
    if options.kind == "episodes":
        with study.store.reading() as connection:
            environment = environment_of(connection, experiment)
        result["world"] = str(environment.folder(study.folder, experiment))
    left_out = {why: count for why, count in done.left_out.items() if count}
    said = [f"{options.out}: {done.written} {options.kind}"]
    said += [f"left out: {count} {why}" for why, count in left_out.items()]
    if done.undecided:
        said.append(
            f"{counted(done.undecided, 'item')} not yet decided in {options.adjudicated_by!r}, "
            "where raters' own votes count"
        )
    said += [f"their world: {world}" for world in result.values()]
    result |= {"file": options.out, "written": done.written, "left_out": left_out}
    result |= {"undecided": done.undecided} if judge is not None else {}
    return _say(options, result, "\n".join(said))


def _import(options: argparse.Namespace) -> int:
    study, experiment = _open(options)
    done = import_votes(study.store, experiment, options.file)
    said = f"{counted(done.votes, 'vote')} added; {done.there} were already there"
    if done.revised:
        said += f"; {done.revised} of those added replaced an earlier vote by the same rater"
    counts = {"votes": done.votes, "revised": done.revised, "there": done.there}
    result = counts | {"errors": [str(error) for error in done.errors]}
    loaded = Loaded(errors=done.errors)
    return _say(options, result, said, loaded)


def _view(options: argparse.Namespace) -> int:
    if (around := study_around(options.study)) is not None:
        raise RefusedError(f"{options.study}: {around} is a study; choose another folder")
    documents, errors = records_of("--documents", options.documents, Document)
    questions, bad = records_of("--questions", options.questions, records.Question)
    for question in questions:
        documents += [page for page in question.documents if isinstance(page, Document)]
    errors += bad

    def read(file: str) -> Iterator[Shown]:
        report = records.Report()
        yield from records.read_parsed(file, parse_shown, lambda _: None, report=report)
        if not report.read:
            raise records.none_usable(file, report.errors)
        errors.extend(report.errors)

    shown = itertools.chain.from_iterable(map(read, options.files))
    count = write_viewer(options.study, options.title, shown, Pages(documents))
    loaded = Loaded(errors=errors)
    said = f"{pathlib.Path(options.study, 'index.html')}: {counted(count, 'answer')}"
    result = {"folder": options.study, "answers": count, "errors": _json_of(loaded)["errors"]}
    return _say(options, result, said, loaded)


def _adjudicate(options: argparse.Namespace) -> int:
    study, experiment = _open(options)
    new, count = adjudicate(study.store, experiment, options.new, options.pool)
    result = {"experiment": new.name, "items": count, "pool": new.pool}
    return _say(options, result, f"experiment {new.name!r} with {count} items, pool {new.pool!r}")


def _admin(options: argparse.Namespace) -> int:
    study = Study(options.study)
    terminal = sys.stdin.isatty()
    password = getpass.getpass("password: ") if terminal else sys.stdin.readline().rstrip("\r\n")
    if len(password) < _LEAST_PASSWORD:
        raise RefusedError(f"the password must have at least {_LEAST_PASSWORD} characters")
    if len(password) > _LONGEST_PASSWORD:
        raise RefusedError(f"the password must have at most {_LONGEST_PASSWORD} characters")
    try:
        password.encode("utf-8")
    except UnicodeEncodeError:
        raise RefusedError("the password is not UTF-8, as browsers send it") from None
    admin_pages.set_password(study.store, options.name, password)
    return _say(options, {"admin": options.name}, f"{options.name} can log in at /admin/login")


def _backup(options: argparse.Namespace) -> int:
    study = Study(options.study)
    study.store.backup(options.file)
    said = f"{options.file}: a copy of the database; also keep {study.folder / 'secret'}"
    return _say(options, {"file": options.file}, said)


# --- Parts ---


def _open(options: argparse.Namespace) -> tuple[Study, Experiment]:
    study = Study(options.study)
    with study.store.reading() as connection:
        return study, experiment_named(connection, options.experiment)


def _problems(loaded: Loaded) -> str:
    lines = [str(error) for error in loaded.errors[:_SHOWN_ERRORS]]
    if len(loaded.errors) > len(lines):
        lines.append(f"… and {len(loaded.errors) - len(lines)} more")
    if loaded.left_over:
        lines.append(
            f"{counted(loaded.left_over, 'answer')} left without another one to compare with"
        )
    return "".join(f"\n{line}" for line in lines)


def _json_of(loaded: Loaded) -> dict[str, Any]:
    errors = [str(error) for error in loaded.errors]
    return {"errors": errors, "left_over": loaded.left_over}


def _say(
    options: argparse.Namespace, result: dict[str, Any], said: str, loaded: Loaded | None = None
) -> int:
    """Prints a result; bad lines are named on stderr, and make the command fail at the end."""
    if options.json:
        print_json(result)
    else:
        print_text(said)
        if loaded is not None and (problems := _problems(loaded)):
            note(problems.strip())
    return FAILED if loaded is not None and loaded.errors else DONE


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "new": _new,
    "add": _add,
    "serve": _serve,
    "invite": _invite,
    "status": _status,
    "undo": _undo,
    "promote": _promote,
    "export": _export,
    "import": _import,
    "view": _view,
    "adjudicate": _adjudicate,
    "admin": _admin,
    "backup": _backup,
}
