"""Adjudication: a deciding rater sees the items that raters disagree on, with their votes."""

import collections
import dataclasses
from collections.abc import Sequence

from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, Vote, counted_votes
from gophercite.ratings.experiments import Experiment, create_experiment
from gophercite.ratings.forms import DEMONSTRATION
from gophercite.ratings.items import NewItem, add_items, items_of
from gophercite.ratings.store import Store, StudyError

_NOT_JUDGED = frozenset({"comment", "flag"})


def adjudicate(
    store: Store, experiment: Experiment, name: str, pool: str
) -> tuple[Experiment, int]:
    """Creates an experiment with the items whose votes differ; one rater decides each item.

    Args:
      store: the study's store.
      experiment: the experiment whose votes are compared.
      name: name of the new experiment.
      pool: the pool of deciding raters.

    Returns:
      The experiment, and how many items were added.

    Raises:
      StudyError: raters agree on all items, the name is taken, or the experiment collects
        demonstrations.
    """
    if experiment.interface == DEMONSTRATION:
        raise StudyError("demonstrations have no votes to adjudicate; name another experiment")
    with store.reading() as connection:
        votes: dict[int, list[Vote]] = collections.defaultdict(list)
        for vote in counted_votes(connection, experiment, Rules()):
            votes[vote.item_id].append(vote)
        stored = items_of(connection, experiment, Role.ITEM)
    new = [
        NewItem(
            each.name,
            dataclasses.replace(
                each.item, others=tuple(dict(vote.values) for vote in votes[each.id])
            ),
        )
        for each in stored
        if disagree(votes[each.id])
    ]
    if not new:
        raise StudyError(f"raters agree on all items of {experiment.name!r} that have votes")
    settings = dataclasses.replace(experiment.settings, raters=1, gold_every=0)
    with store.writing():  # one transaction, so that an interruption leaves no empty experiment
        adjudication = create_experiment(store, name, experiment.interface, pool, settings)
        added = add_items(store, adjudication, new).added
    return adjudication, added


def disagree(votes: Sequence[Vote]) -> bool:
    """Whether any two votes differ in anything besides comments and flags."""
    said = [
        {name: value for name, value in vote.values.items() if name not in _NOT_JUDGED}
        for vote in votes
    ]
    return any(each != said[0] for each in said[1:])
