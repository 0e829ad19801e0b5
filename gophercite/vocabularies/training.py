"""Trains a SentencePiece model that spells every text exactly."""

import io
from collections.abc import Iterable, Iterator
from typing import Literal

import sentencepiece

from gophercite import evidence
from gophercite.vocabularies.sentence_piece import SPACE, SentencePieceVocabulary
from gophercite.vocabularies.vocabulary import BYTES, VocabularyError

# SentencePiece silently drops longer sentences, so lines are cut beforehand.
_MAXIMUM_LINE_BYTES = 1 << 16
_MAXIMUM_LINE_CHARACTERS = _MAXIMUM_LINE_BYTES // 4


def train_sentencepiece(
    texts: Iterable[str],
    size: int,
    model_type: Literal["unigram", "bpe"] = "unigram",
    *,
    reserved_marks: bool = True,
    character_coverage: float = 0.9995,
    sample_lines: int = 0,
    seed: int = 0,
    quiet: bool = True,
) -> SentencePieceVocabulary:
    """Trains a SentencePiece model: identity normalisation, byte fallback, white space kept.

    Ids 0, 1 and 2 are padding, end of sequence and unknown; there is no beginning of sequence.
    Digits are split, so that numbers are spelled digit by digit, and a line end is one token.

    Args:
      texts: the training texts; the vocabulary depends on their order only through `sample_lines`.
      size: number of pieces, including 256 bytes and the special ones. The model is smaller if the
        texts do not have enough pieces.
      model_type: how pieces are chosen.
      reserved_marks: makes each mark of inline evidence one token, including `" %<"`, with which
        responses begin.
      character_coverage: share of the texts' characters that get their own pieces; the others are
        spelled by bytes.
      sample_lines: number of lines in a random sample to train on; 0 for all.
      seed: seed of that sample.
      quiet: False lets SentencePiece write its progress to standard error.

    Raises:
      VocabularyError: when the texts are empty, or `size` is too small for them.
      Exception: what reading the texts raises.
    """
    symbols = ["\n"]
    if reserved_marks:
        symbols += [*evidence.MARKS, SPACE + evidence.CLAIM_MARK]
    if size < BYTES + len(symbols) + 3:
        raise VocabularyError(
            f"a vocabulary of {size} is too small for {BYTES} bytes and {len(symbols) + 3} special "
            "pieces"
        )
    model = io.BytesIO()
    lines = _Lines(texts)
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            user_defined_symbols=symbols,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            max_sentence_length=_MAXIMUM_LINE_BYTES,
            input_sentence_size=sample_lines,
            shuffle_input_sentence=sample_lines > 0,
            num_threads=2,  # sums are grouped by thread: the number of threads affects rounding
            minloglevel=2 if quiet else 0,
        )
    except RuntimeError as error:
        if lines.problem is not None:
            raise lines.problem from None
        if not lines.has_text:
            raise VocabularyError("the texts are empty") from None
        raise VocabularyError(f"SentencePiece could not be trained: {error}") from None
    return SentencePieceVocabulary(model.getvalue())


class _Lines:
    """The lines of texts, cut to what SentencePiece takes.

    Attributes:
      has_text: whether there was any.
      problem: what reading the texts raised: SentencePiece says only that something went wrong.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self.has_text = False
        self.problem: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for text in self._texts:
                for line in text.split("\n"):
                    for start in range(0, len(line), _MAXIMUM_LINE_CHARACTERS):
                        self.has_text = True
                        yield line[start : start + _MAXIMUM_LINE_CHARACTERS]
        except Exception as error:
            self.problem = error
            raise
