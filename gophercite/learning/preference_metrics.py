"""A reward model's metrics on labelled pairs, as totals that add up over batches.

Two metrics are not means over pairs and are computed from histograms: the calibration error of the
preference probability, and the area under the ROC curve of supported-and-plausible predictions.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gophercite.learning.state import Batch, Totals, means
from gophercite.models.reward_model import Verdict

CALIBRATION, ROC = "preference_calibration", "supported_and_plausible_roc"

_CONFIDENCE_BINS = 10  # over [0.5, 1]
# Log-odds from -_LIMIT to _LIMIT in steps of 0.01; two scores in the same bin count as a draw.
_LIMIT, _SCORE_BINS = 20.0, 4001


def preference_totals(verdict: Verdict, batch: Batch) -> Totals:
    """Losses and other metrics of pairs.

    Args:
      verdict: verdicts on both responses of each pair, [pairs, 2].
      batch: `preferred`, `preferred_weights`, `supported_and_plausible`, `label_weights`
        (`RewardLearner`).

    Returns:
      Totals and their weights: `preference_loss` and `supported_and_plausible_loss` (nats),
      `preference_accuracy` (ties left out), `preference_accuracy_with_ties` (a tie counts half,
      whatever the prediction), `margin` (the preferred response's reward minus the other's, ties
      left out), and two histograms for `summarise`.
    """
    preferred, weights = batch["preferred"], batch["preferred_weights"]
    log_odds = verdict.reward[:, 1] - verdict.reward[:, 0]
    decided = weights * (preferred != 0.5)
    towards = jnp.sign(preferred - 0.5)
    margin = log_odds * towards
    right = jnp.where(margin == 0, 0.5, (margin > 0).astype(jnp.float32))
    labels, label_weights = batch["supported_and_plausible"], batch["label_weights"]
    judged = verdict.supported_and_plausible
    pairs = jnp.sum(weights)
    preference = optax.sigmoid_binary_cross_entropy(log_odds, preferred)
    auxiliary = optax.sigmoid_binary_cross_entropy(judged, labels)
    with_ties = jnp.where(towards == 0, 0.5, right)
    return {
        "preference_loss": (jnp.sum(weights * preference), pairs),
        "supported_and_plausible_loss": (
            jnp.sum(label_weights * auxiliary),
            jnp.sum(label_weights),
        ),
        "preference_accuracy": (jnp.sum(decided * right), jnp.sum(decided)),
        "preference_accuracy_with_ties": (jnp.sum(weights * with_ties), pairs),
        "margin": (jnp.sum(decided * margin), jnp.sum(decided)),
        CALIBRATION: _confidence(log_odds, preferred, weights),
        ROC: (
            _histogram(judged, label_weights * labels),
            _histogram(judged, label_weights * (1 - labels)),
        ),
    }


def summarise(totals: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Metrics of a dataset.

    Args:
      totals: sums of `preference_totals` over the dataset's batches.

    Returns:
      The means by name; `preference_calibration_error`, the expected difference between the model's
      probability for its choice and the frequency with which that choice is right (ten equal bins;
      a tie counts as half right); `supported_and_plausible_auc`, the probability that a
      supported-and-plausible response gets higher log-odds than one that is not. NaN if the dataset
      has no such labels.
    """
    plain = {name: pair for name, pair in totals.items() if name not in (CALIBRATION, ROC)}
    (claimed, happened), counts = totals[CALIBRATION][0], totals[CALIBRATION][1]
    pairs = counts.sum()
    error = np.abs(claimed - happened).sum() / pairs if pairs else np.nan
    return {
        **means(plain),
        "preference_calibration_error": float(error),
        "supported_and_plausible_auc": area_under_roc(*totals[ROC]),
    }


def area_under_roc(
    positives: Float[np.ndarray, " bins"], negatives: Float[np.ndarray, " bins"]
) -> float:
    """The area under the ROC curve of scores in bins; a draw counts half.

    Args:
      positives: number of positive examples with a score in each bin, lowest bin first.
      negatives: the same for negative examples.

    Returns:
      The area in [0, 1]; NaN unless there are examples of both kinds.
    """
    pairs = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - 0.5 * negatives
    return float((positives * below).sum() / pairs) if pairs else float("nan")


def _confidence(
    log_odds: Float[Array, " pairs"],
    preferred: Float[Array, " pairs"],
    weights: Float[Array, " pairs"],
) -> tuple[Float[Array, "2 bins"], Float[Array, " bins"]]:
    """Calibration bins of the choice's probability: sums of it and of correct choices; counts.

    Binning by the model's choice, not by the second response, makes the order of a pair's responses
    irrelevant.
    """
    confidence = jax.nn.sigmoid(jnp.abs(log_odds))
    right = jnp.where(log_odds >= 0, preferred, 1 - preferred)
    index = ((confidence - 0.5) * 2 * _CONFIDENCE_BINS).astype(jnp.int32)
    index = jnp.minimum(index, _CONFIDENCE_BINS - 1)

    def total(values: Array) -> Array:
        return jnp.zeros(_CONFIDENCE_BINS).at[index].add(weights * values)

    return jnp.stack([total(confidence), total(right)]), total(jnp.ones_like(confidence))


def _histogram(
    scores: Float[Array, "pairs 2"], weights: Float[Array, "pairs 2"]
) -> Float[Array, " bins"]:
    place = (jnp.clip(scores, -_LIMIT, _LIMIT) + _LIMIT) / (2 * _LIMIT) * (_SCORE_BINS - 1)
    return jnp.zeros(_SCORE_BINS).at[jnp.round(place).astype(jnp.int32)].add(weights)
