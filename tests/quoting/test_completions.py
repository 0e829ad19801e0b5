"""How far a token leads within a claim, beside the definition."""

import numpy as np
import pytest

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.quoting.claims import claim_automaton
from gophercite.quoting.completions import longest_steps
from gophercite.quoting.token_trie import ClaimTokens, TokenTrie
from gophercite.quoting.token_walks import UNLIMITED, Limits


@pytest.mark.parametrize("maximum", [UNLIMITED, 12, 3])
def test_the_longest_step_between_two_states_is_found(maximum: int) -> None:
    claim = claim_automaton()
    tokens = ClaimTokens.build(claim, TokenTrie.build(bundled_vocabulary()))
    lengths = 4  # of claims, which a quote of at least three characters tells apart
    found = longest_steps(claim, tokens, Limits(3, UNLIMITED, 1, maximum, 0, False))
    states = len(claim.next)
    expected = np.full((lengths + 1, states, states), -1)
    for before, token in zip(*np.nonzero(tokens.next < states), strict=True):
        after, added = tokens.next[before, token], tokens.added[before, token]
        for missing in range(lengths + 1):
            # A claim that is only white space so far still needs another character.
            blank = not claim.content[after if missing else before]
            most = maximum - (lengths - missing) - blank if missing else blank
            if maximum < UNLIMITED and added > most:
                continue
            expected[missing, before, after] = max(expected[missing, before, after], added)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 2
