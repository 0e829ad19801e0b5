"""A reward model with a vocabulary of its own reads the same text."""

import dataclasses

import jax
import numpy as np

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import prompts
from gophercite.evidence import Evidence
from gophercite.learning.reencoding import Reencoding, same_tokens
from gophercite.learning.rollouts import Rewards
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from tests.learning.test_a2c import BYTES, CONFIG, batch, learner, parameters
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList

HOSTILE = TokenList(HOSTILE_PIECES)


def test_same_tokens() -> None:
    assert same_tokens(BYTES, TokenList(()))
    assert not same_tokens(BYTES, HOSTILE)
    assert not same_tokens(HOSTILE, TokenList([*HOSTILE_PIECES[:-1], b"other"]))


def test_text_in_the_tokens_of_another_vocabulary() -> None:
    judge = bundled_vocabulary()
    triple = Evidence("Ada", "Boravel", "The mayor is Ada. ☃")
    ids = BYTES.encode(prompts.response(triple))
    tokens = np.zeros((3, 64), np.int32)
    tokens[0, : len(ids)] = ids  # and the end, which is 0
    tokens[1, :5] = BYTES.encode("half ")
    rows, sizes = Reencoding(BYTES, judge, 30)(tokens, np.array([len(ids) + 1, 5, 0]))
    whole = prompts.encode_response(judge, triple)
    np.testing.assert_array_equal(rows[0, : sizes[0]], whole)
    assert rows[1, : sizes[1]].tolist() == [*judge.encode(" half "), judge.eos_id]
    assert rows[2, sizes[2] - 1] == judge.eos_id
    cut, sizes = Reencoding(BYTES, judge, 8)(tokens, np.array([len(ids) + 1, 5, 0]))
    assert cut[0].tolist() == [*whole[:7], judge.eos_id]
    assert sizes[0] == 8


def test_rollouts_are_judged_by_their_text() -> None:
    """Whatever bytes were drawn."""
    own = bundled_vocabulary()
    judge = RewardModel(
        Transformer(dataclasses.replace(CONFIG, vocab_size=own.size, max_positions=128))
    )
    of = learner(rewards=Rewards(judge, reencode=Reencoding(BYTES, own, 100)))
    params, shown = parameters(of), batch(constrained=False)
    rollouts = jax.jit(of.collect)(params, shown, jax.random.key(5)).rollouts
    judge_alone = jax.jit(judge.judge)
    for row in (0, 5):
        size = rollouts.response_lengths[row]
        text = BYTES.decode(np.asarray(rollouts.responses[row, :size]))
        question = np.asarray(shown["questions"][row // 4])
        asked = question[: shown["question_lengths"][row // 4]].tolist()
        response = prompts.encode_response_text(own, text)
        assert 10 < len(response) < 100
        ids = [*asked, *response, own.eos_id]
        room = np.zeros((1, 112), np.int32)
        room[0, : len(ids)] = ids
        alone = judge_alone(params["reward_model"], room, np.array([len(ids)]))
        np.testing.assert_allclose(rollouts.verdicts.reward[row], alone.reward[0], rtol=1e-3)
