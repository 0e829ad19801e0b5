"""Ratings as records: rated answers, comparisons, DPO, WebGPT's format, single votes, episodes.

Raters appear under pseudonyms, which can be traced only with the study's secret. Comments are left
out unless requested, since a comment may reveal who wrote it. The rules by which votes counted are
written to a file next to the export.
"""

import collections
import dataclasses
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from data_pipelines.converters.webgpt import (
    ReleasedAnswer,
    ReleasedComparison,
    write_webgpt_comparisons,
)
from gophercite import prompts, records
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.evidence import Evidence
from gophercite.ratings.assignment import Role
from gophercite.ratings.browsed_worlds import environment_of
from gophercite.ratings.counting import Rules, Vote, counted_votes
from gophercite.ratings.demonstrations import episode
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.items import Answer, StoredItem, items_of, page_of
from gophercite.ratings.schema import experiments as experiments_table
from gophercite.ratings.store import Store, StudyError, note
from gophercite.records import Comparison, Extract, Hit, LongAnswer, RatedAnswer, Response
from gophercite.reports.human import majority
from gophercite.storage import write_whole
from gophercite.storage.json_fields import RecordError

T = TypeVar("T")

KINDS = ("rated-answers", "comparisons", "dpo", "webgpt", "votes", "episodes")
# A value on a scale, as the forms have them: 0 to 6, or -2 to 2.
_SCALE = re.compile(r"-?[0-9]{1,2}")
_JUDGED = ("plausible", "supported", "truthful", "informative")
_TIES = frozenset({"both_good", "both_bad", "tie"})


@dataclasses.dataclass
class Exported:
    """The result of an export.

    Attributes:
      written: number of lines that were written.
      left_out: number of items or answers that were left out, by reason.
      undecided: number of items that the adjudication has not decided yet, so that raters' own
        votes count.
    """

    written: int = 0
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    undecided: int = 0


@dataclasses.dataclass(frozen=True)
class _Rated:
    """An item with the votes that count."""

    stored: StoredItem
    votes: tuple[Vote, ...]


class Exporter:
    """Converts an experiment's ratings to records.

    Args:
      store: the study's store.
      secret: the study's secret, from which pseudonyms are derived.
      experiment: the experiment to export.
      rules: which votes count.
      comments: whether raters' comments are exported.
      adjudicated_by: an experiment whose votes replace the votes on the items that it contains,
        known by their names and questions.
    """

    def __init__(
        self,
        store: Store,
        secret: str,
        experiment: Experiment,
        rules: Rules,
        *,
        comments: bool = False,
        adjudicated_by: Experiment | None = None,
    ) -> None:
        self._store, self._experiment, self._rules = store, experiment, rules
        self._secret, self._comments, self._judge = secret, comments, adjudicated_by
        self.done = Exported()

    def write(self, kind: str, path: str | os.PathLike[str]) -> Exported:
        """Writes a file and, next to it, the rules by which it was produced.

        Args:
          kind: one of `KINDS`.
          path: `.jsonl`, or `.jsonl.gz` except for `webgpt`.

        Raises:
          StudyError: there is nothing to write, `webgpt` is to be compressed, or the adjudication
            has none of the items. An existing file then stays as it is.
        """
        path = pathlib.Path(path)
        if kind == "webgpt" and path.suffix == ".gz":
            raise StudyError(f"{path}: webgpt is not compressed: choose a name without .gz")
        with self._store.reading() as connection:
            rated = self._rated(connection)
            if kind == "rated-answers":
                answers = self._some(kind, self._rated_answers(connection, rated))
                self.done.written = records.write(path, answers)
            elif kind == "comparisons":
                comparisons = self._some(kind, self._comparisons(rated))
                self.done.written = records.write(path, comparisons)
            elif kind == "dpo":
                self.done.written = records.write_json(path, self._some(kind, self._dpo(rated)))
            elif kind == "webgpt":
                released = self._some(kind, self._webgpt(rated))
                with write_whole(path) as partial:
                    self.done.written = write_webgpt_comparisons(partial, released)
            elif kind == "episodes":
                episodes = self._some(kind, self._episodes(connection, rated))
                self.done.written = write_episodes(path, episodes)
            else:
                self.done.written = records.write_json(path, self._some(kind, self._votes(rated)))
        self._write_rules(kind, path)
        return self.done

    def _some(self, kind: str, lines: Iterable[T]) -> Iterator[T]:
        """The lines; raises an error if there are none, before the writer replaces the file."""
        is_empty = True
        for line in lines:
            is_empty = False
            yield line
        if is_empty:
            why = ", ".join(f"{count} {why}" for why, count in self.done.left_out.items())
            raise StudyError(f"there is nothing to export as {kind}: {why or 'no item has a vote'}")

    def _rated(self, connection: sa.Connection) -> list[_Rated]:
        votes = self._votes_by_item(connection, self._experiment)
        stored = items_of(connection, self._experiment, Role.ITEM, Role.GOLD)
        if self._judge is not None:
            judged = {
                (each.name, each.item.question): each.id
                for each in items_of(connection, self._judge, Role.ITEM)
            }
            decided = self._votes_by_item(connection, self._judge)
            both = [each for each in stored if (each.name, each.item.question) in judged]
            if not both:
                raise StudyError(
                    f"experiment {self._judge.name!r} decides no item of "
                    f"{self._experiment.name!r}; make one that does with `gophercite rate "
                    "adjudicate`"
                )
            for each in both:
                if final := decided.get(judged[each.name, each.item.question]):
                    votes[each.id] = final
                else:
                    self.done.undecided += 1
        found = [_Rated(each, tuple(votes[each.id])) for each in stored if each.id in votes]
        self.done.left_out["without a vote that counts"] += len(stored) - len(found)
        return found

    def _votes_by_item(
        self, connection: sa.Connection, experiment: Experiment
    ) -> dict[int, list[Vote]]:
        by_item: dict[int, list[Vote]] = {}
        for vote in counted_votes(connection, experiment, self._rules):
            by_item.setdefault(vote.item_id, []).append(vote)
        return by_item

    def _rated_answers(
        self, connection: sa.Connection, rated: Iterable[_Rated]
    ) -> Iterator[RatedAnswer]:
        for each in rated:
            for place, answer in enumerate(each.stored.item.answers):
                if len(answer.claims) != 1:
                    self.done.left_out["answers without just one claim with evidence"] += 1
                    continue
                record = self._rated_answer(connection, each, place, answer)
                try:
                    yield records.from_json(records.to_json(record), RatedAnswer)
                except RecordError as error:
                    self.done.left_out[f"answers whose {error.field} {error.problem}"] += 1

    def _rated_answer(
        self, connection: sa.Connection, rated: _Rated, place: int, answer: Answer
    ) -> RatedAnswer:
        (claim,), item = answer.claims, rated.stored.item
        documents: list[Any] = []
        for source in answer.documents:
            page = page_of(connection, source["sha256"]) if "sha256" in source else None
            documents.append(
                dataclasses.replace(page, id=source["id"])
                if page is not None
                else Hit(source["id"], source.get("snippet", claim.quote))
            )
        document = answer.document
        if document is None:
            page = page_of(connection, claim.page) if claim.page else None
            documents = [page or Hit(claim.title, claim.quote)]
            document = documents[0].id
        ratings = tuple(self._judgements(vote, place) for vote in rated.votes)

        def decide(name: str) -> bool | None:
            return majority(each[name] for each in ratings if name in each)

        return RatedAnswer(
            item.question_id,
            item.question,
            tuple(documents),
            claim.claim,
            claim.title,
            claim.quote,
            document,
            decide("plausible"),
            decide("supported"),
            ratings,
            answer.model,
        )

    def _comparisons(self, rated: Iterable[_Rated]) -> Iterator[Comparison]:
        for each in rated:
            item = each.stored.item
            if len(item.answers) != 2:
                self.done.left_out["items with one answer"] += 1
                continue
            labels = tuple(self._compared(vote) for vote in each.votes)
            verdicts = (
                majority(r["supported_and_plausible"][a] for r in labels if _known(r, a))
                for a in (0, 1)
            )
            first, second = item.answers
            yield Comparison(
                each.stored.name,
                item.question,
                item.source,
                (_response(first), _response(second)),
                preferred(label["preferred"] for label in labels),
                (next(verdicts), next(verdicts)),
                labels,
            )

    def _dpo(self, rated: Iterable[_Rated]) -> Iterator[dict[str, str]]:
        """Pairs in the format of DPO trainers; ties have no better side and are left out."""
        for each in rated:
            item = each.stored.item
            if len(item.answers) != 2:
                self.done.left_out["items with one answer"] += 1
                continue
            choice = preferred(self._compared(vote)["preferred"] for vote in each.votes)
            if choice not in (0.0, 1.0):
                self.done.left_out["ties and undecided items"] += 1
                continue
            better, worse = item.answers[int(choice)], item.answers[1 - int(choice)]
            yield {
                "prompt": prompts.prompt(item.question, []),
                "chosen": _as_sampled(better),
                "rejected": _as_sampled(worse),
            }

    def _webgpt(self, rated: Iterable[_Rated]) -> Iterator[ReleasedComparison]:
        """WebGPT's release format (section K); an answer's score is its mean rating in [-1, 1]."""
        for each in rated:
            item = each.stored.item
            if len(item.answers) != 2:
                self.done.left_out["items with one answer"] += 1
                continue
            strengths = [s for vote in each.votes if (s := _strength(vote)) is not None]
            if not strengths:
                self.done.left_out["undecided items"] += 1
                continue
            score = sum(strengths) / len(strengths)
            first, second = (
                ReleasedAnswer(
                    answer.as_text,
                    tuple((_titled(each), each.extract) for each in answer.references)
                    or tuple((claim.title, claim.quote) for claim in answer.claims),
                    sign * score if score else 0.0,
                )
                for sign, answer in zip((-1, 1), item.answers, strict=True)
            )
            yield ReleasedComparison(item.question, item.source, item.question_id, (first, second))

    def _votes(self, rated: Iterable[_Rated]) -> Iterator[dict[str, Any]]:
        for each in rated:
            for vote in each.votes:
                values = {n: v for n, v in vote.values.items() if self._comments or n != "comment"}
                rater = {"item": each.stored.name, "rater": self._pseudonym(vote.rater_id)}
                yield {**rater, "seconds": round(vote.seconds, 1), **values}

    def _episodes(self, connection: sa.Connection, rated: Iterable[_Rated]) -> Iterator[Episode]:
        """Demonstrations, in the format of behaviour cloning."""
        where = environment_of(connection, self._experiment)
        for each in rated:
            for vote in each.votes:
                by = self._pseudonym(vote.rater_id)
                name = f"{self._experiment.name}/{each.stored.name}/{by}"
                yield episode(connection, each.stored, vote.rater_id, where, id=name, by=by)

    def _judgements(self, vote: Vote, place: int) -> dict[str, Any]:
        """A vote's judgement of one answer, in the format of `gophercite.reports.human`."""
        said = {name: vote.values.get(f"{name}_{place}") for name in _JUDGED}
        known = {name: value == "yes" for name, value in said.items() if value in ("yes", "no")}
        return {"rater": self._pseudonym(vote.rater_id), **known, **self._comment(vote)}

    def _compared(self, vote: Vote) -> dict[str, Any]:
        """A vote's judgement of two answers, in the format of a comparison record."""
        sides = [self._judgements(vote, place) for place in (0, 1)]
        both = [_both(side.get("supported"), side.get("plausible")) for side in sides]
        found: dict[str, Any] = {"rater": sides[0]["rater"], "preferred": _preference(vote)}
        for name in _JUDGED:
            if any(name in side for side in sides):
                found[name] = [side.get(name) for side in sides]
        found["supported_and_plausible"] = both
        scales = {
            name: int(value)
            for name, value in vote.values.items()
            if name not in ("preferred", "comment") and _SCALE.fullmatch(value)
        }
        return {**found, **scales, **self._comment(vote)}

    def _comment(self, vote: Vote) -> dict[str, str]:
        comment = vote.values.get("comment")
        return {"comment": comment} if self._comments and comment else {}

    def _pseudonym(self, rater_id: int) -> str:
        key = f"gophercite pseudonym {self._secret}".encode()
        return "rater-" + hmac.new(key, str(rater_id).encode(), hashlib.sha256).hexdigest()[:10]

    def _write_rules(self, kind: str, path: pathlib.Path) -> None:
        now = self._store.now()
        with self._store.writing() as connection:
            name = self._experiment.name
            said = {"experiment": name, "kind": kind, "lines": self.done.written}
            note(connection, now, "command", "exported", said)
            created = sa.select(experiments_table.c.interface).where(
                experiments_table.c.name == name
            )
            interface = connection.execute(created).scalar_one()
        rules = {
            "experiment": name,
            "interface": interface,
            "kind": kind,
            "exported_at": datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(),
            "settings": dataclasses.asdict(self._experiment.settings),
            "rules": dataclasses.asdict(self._rules),
            "adjudicated_by": self._judge.name if self._judge else None,
            "written": self.done.written,
            "left_out": dict(self.done.left_out),
        }
        text = json.dumps(rules, ensure_ascii=False, indent=2) + "\n"
        path.with_name(path.name + ".rules.json").write_text(text, "utf-8")


def preferred(votes: Iterable[float | None]) -> float | None:
    """Returns the most common label; on a tie the lower one; None if nobody decided."""
    counts = collections.Counter(vote for vote in votes if vote is not None)
    best = max((0.0, 0.5, 1.0), key=lambda label: counts[label])
    return best if counts[best] else None


def _strength(vote: Vote) -> float | None:
    """How strongly the second answer is preferred, from -1 to 1."""
    if vote.values.get("flag"):
        return None
    if "overall" in vote.values:
        return int(vote.values["overall"]) / 2
    choice = vote.values.get("preferred")
    return {"0": -1.0, "1": 1.0}.get(choice or "", 0.0 if choice in _TIES else None)


def _preference(vote: Vote) -> float | None:
    strength = _strength(vote)
    return None if strength is None else 0.5 + 0.5 * ((strength > 0) - (strength < 0))


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in (one, other) else None if None in (one, other) else True


def _known(rating: Mapping[str, Any], place: int) -> bool:
    return rating["supported_and_plausible"][place] is not None


def _response(answer: Answer) -> Response:
    if answer.references:
        return LongAnswer(answer.as_text, answer.references)
    if answer.text is not None:
        return answer.text
    return _triples(answer)


def _triples(answer: Answer) -> tuple[Evidence, ...]:
    return tuple(Evidence(each.claim, each.title, each.quote) for each in answer.claims)


def _titled(reference: Extract) -> str:
    """A page's title in WebGPT's format."""
    return f"{reference.title} ({reference.domain})" if reference.domain else reference.title


def _as_sampled(answer: Answer) -> str:
    return f" {answer.text}" if answer.text is not None else prompts.response(*_triples(answer))
