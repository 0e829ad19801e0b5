"""Whether a published tokenizer puts a beginning-of-sequence token before every text.

Models that were trained with one need it badly: without it the perplexity of some is a million
times larger. So what counts is what the tokenizer itself does, not whether it has such a token.
"""

import itertools
import pathlib

import tokenizers

from gophercite.vocabularies.tokenizer_config import read_special_tokens
from gophercite.vocabularies.vocabulary import VocabularyError

TOKENIZER_JSON = "tokenizer.json"


def token_before_texts(tokenizer: tokenizers.Tokenizer) -> int | None:
    """The token that a tokenizer's `post_processor` puts before every text, or None.

    Raises:
      VocabularyError: it puts several tokens there.
    """
    encoding = tokenizer.encode("a")
    marked = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    before = [id for id, _ in itertools.takewhile(lambda token: token[1], marked)]
    if len(before) > 1:
        raise VocabularyError(
            f"the tokenizer begins texts with {len(before)} tokens of its own ({before}): only one "
            "is supported"
        )
    return before[0] if before else None


def adds_bos_token(folder: pathlib.Path) -> bool:
    """Whether texts of a published SentencePiece model start with its beginning-of-sequence token.

    Args:
      folder: the model's folder. `tokenizer.json` of the same tokenizer decides, else
        `tokenizer_config.json`; without either file, they do.

    Raises:
      VocabularyError: one of the files can't be read.
    """
    path = folder / TOKENIZER_JSON
    if not path.exists():
        return read_special_tokens(folder).add_bos_token is not False
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain `Exception`
        raise VocabularyError(f"{path}: this is not a tokenizer.json ({error})") from None
    return token_before_texts(tokenizer) is not None
