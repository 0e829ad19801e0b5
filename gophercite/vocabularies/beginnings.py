"""Whether a published tokenizer puts a beginning-of-sequence token before every text.

Models that were trained with one need it badly: without it the perplexity of some is a million
times larger. So what counts is what the tokenizer itself does, not whether it has such a token.
"""

import itertools
import pathlib

import tokenizers

from gophercite.vocabularies.library_errors import naming_library_errors
from gophercite.vocabularies.tokenizer_config import read_special_tokens
from gophercite.vocabularies.vocabulary import VocabularyError

TOKENIZER_JSON = "tokenizer.json"
PREFIX_PATTERN = r"\A"  # how a dummy prefix's pattern begins, where one is needed


def token_before_texts(tokenizer: tokenizers.Tokenizer) -> int | None:
    """The token that a tokenizer's `post_processor` puts before every text, or None.

    Raises:
      VocabularyError: it puts several tokens there, or one that it doesn't have, or it fails.
    """
    encoding = naming_library_errors(
        lambda: tokenizer.encode("a"), "the tokenizer can't encode even the text 'a'"
    )
    marked = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    before = [id for id, _ in itertools.takewhile(lambda token: token[1], marked)]
    if len(before) > 1:
        raise VocabularyError(
            f"the tokenizer begins texts with {len(before)} tokens of its own ({before}): only one "
            "is supported"
        )
    if not before:
        return None
    if tokenizer.id_to_token(before[0]) is None:
        raise VocabularyError(
            f"the tokenizer begins texts with token {before[0]}, which it doesn't have: correct "
            "the ids in `post_processor`"
        )
    return before[0]


def read_tokenizer_json(folder: pathlib.Path) -> tokenizers.Tokenizer | None:
    """The `tokenizer.json` of a published SentencePiece model's folder; None if there is none.

    Raises:
      VocabularyError: it can't be read or used; the message names it.
    """
    path = folder / TOKENIZER_JSON
    if not path.exists():
        return None
    try:
        return naming_library_errors(
            lambda: tokenizers.Tokenizer.from_file(str(path)), "this is not a tokenizer.json"
        )
    except VocabularyError as error:
        raise VocabularyError(f"{path}: {error}") from None


def adds_bos_token(folder: pathlib.Path, tokenizer: tokenizers.Tokenizer | None) -> bool:
    """Whether texts of a published SentencePiece model start with its beginning-of-sequence token.

    Args:
      folder: the model's folder.
      tokenizer: its `tokenizer.json`, which decides; without it, `tokenizer_config.json` does;
        without either, they do.

    Raises:
      VocabularyError: one of the files can't be read or used; the message names it.
    """
    if tokenizer is None:
        return read_special_tokens(folder).add_bos_token is not False
    try:
        return token_before_texts(tokenizer) is not None
    except VocabularyError as error:
        raise VocabularyError(f"{folder / TOKENIZER_JSON}: {error}") from None
