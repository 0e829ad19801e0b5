"""Hugging Face `tokenizer.json`: byte-level BPE, and metaspace models with byte fallback."""

import json
import os
import pathlib
import re
from typing import Any

import tokenizers

from gophercite.vocabularies.beginnings import (
    PREFIX_PATTERN,
    TOKENIZER_JSON,
    token_before_texts,
)
from gophercite.vocabularies.end_tokens import write_end_tokens
from gophercite.vocabularies.library_errors import naming_library_errors
from gophercite.vocabularies.prompt_form import PromptForm
from gophercite.vocabularies.tokenizer_config import (
    CONFIG_NAME,
    read_special_tokens,
    write_config,
)
from gophercite.vocabularies.vocabulary import (
    BYTES,
    MAXIMUM_SIZE,
    Vocabulary,
    VocabularyError,
    byte_of_piece,
)

FILE_NAME = TOKENIZER_JSON

_RARE = "a \u2603\U0010fffd"  # a letter, and characters for which few tokenizers have a token
_SPACE = "\u2581"  # metaspace models' character for a space

# Names of special tokens in use, for tokenizers that come without `tokenizer_config.json`.
_EOS_NAMES = ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "[EOS]")
_BOS_NAMES = ("<s>", "<bos>", "<|begin_of_text|>", "[BOS]")
_PAD_NAMES = ("<pad>", "<|pad|>", "<|finetune_right_pad_id|>", "[PAD]")
_UNK_NAMES = ("<unk>", "[UNK]")

# How families of byte-level tokenizers split texts before merging bytes, if not as GPT-2.
LLAMA_3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_WORDS = LLAMA_3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

# All of these split before a space that follows anything but white space. Up to the next such place
# there may be line ends and tabs, which some of them join to what is before.
_UP_TO_A_SPACE = re.compile(r"\s*+(?:\S++(?:[^\S ]\s*+)?+)++|\s++")


class HuggingFaceVocabulary(Vocabulary):
    """A tokenizer of the `tokenizers` library.

    Args:
      tokenizer_json: the content of `tokenizer.json`.
      eos_token, bos_token, pad_token: names of the special tokens; None searches for the customary
        names.
      add_bos_token: texts begin with `bos_token` even if the tokenizer's own `post_processor` puts
        nothing before them. If it does put a token there, texts begin with that in any case.

    Raises:
      VocabularyError: when this is not a tokenizer, or one that can't spell every text, or a named
        token is missing.
    """

    def __init__(
        self,
        tokenizer_json: str,
        *,
        eos_token: str | None = None,
        bos_token: str | None = None,
        pad_token: str | None = None,
        add_bos_token: bool | None = None,
    ) -> None:
        self._json = tokenizer_json  # written back unchanged by `save`
        settings, self.dummy_prefix, self._tokenizer = _read_tokenizer(tokenizer_json)
        self.splits_words, self.word = _splits_before_spaces(settings), _UP_TO_A_SPACE
        # `</s>` in a page must not end the response.
        self._tokenizer.encode_special_tokens = True
        self._tokenize(_RARE)  # fails now, and not with some page, if the tokenizer can't

        token_bytes = _bytes_of_tokens(self._tokenizer, settings)
        super().__init__(token_bytes, _byte_ids(self._tokenizer, settings))

        eos_id = self._special_id(eos_token, _EOS_NAMES)
        if eos_id is None:
            raise VocabularyError(
                "the tokenizer has no end-of-sequence token of a known name "
                f"({', '.join(_EOS_NAMES)}): name it with `eos_token`, or in {CONFIG_NAME}"
            )
        pad_id = self._special_id(pad_token, _PAD_NAMES)
        self.eos_id = eos_id
        self.pad_id = eos_id if pad_id is None else pad_id
        named = self._special_id(bos_token, _BOS_NAMES)
        added = token_before_texts(self._tokenizer)
        self.bos_id = named if added is None and add_bos_token else added
        self.unk_id = self._special_id(None, _UNK_NAMES)
        special = (self.eos_id, self.pad_id, named, self.bos_id, self.unk_id)
        self._token_bytes = tuple(
            None if id in special else spelled for id, spelled in enumerate(self._token_bytes)
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "HuggingFaceVocabulary":
        """Reads a `tokenizer.json`, and the special tokens in the `tokenizer_config.json` there."""
        path = pathlib.Path(path)
        special = read_special_tokens(path.parent)
        try:
            return cls(path.read_text("utf-8"), **special._asdict())
        except OSError as error:
            raise VocabularyError(f"{path}: can't be read: {error.strerror or error}") from None
        except (VocabularyError, UnicodeDecodeError) as error:
            raise VocabularyError(f"{path}: {error}") from None

    def write_files(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json`, and its special tokens next to it."""
        folder = pathlib.Path(folder)
        (folder / FILE_NAME).write_text(self._json, "utf-8")
        write_config(folder, self._tokenizer.id_to_token, self)
        write_end_tokens(folder, self)
        if (form := PromptForm.of(self)) != PromptForm():
            form.write(folder)

    def _tokenize(self, text: str) -> list[int]:
        encode = self._tokenizer.encode
        return naming_library_errors(
            lambda: encode(text, add_special_tokens=False).ids, "the tokenizer can't encode a text"
        )

    def _special_id(self, name: str | None, customary: tuple[str, ...]) -> int | None:
        if name is not None:
            id = self._tokenizer.token_to_id(name)
            if id is None:
                raise VocabularyError(f"the tokenizer has no token {name!r}")
            return id
        ids = (self._tokenizer.token_to_id(name) for name in customary)
        return next((id for id in ids if id is not None), None)


def _read_tokenizer(tokenizer_json: str) -> tuple[dict[str, Any], bool, tokenizers.Tokenizer]:
    """Reads a tokenizer that puts no space before the first word, and neither cuts, pads nor draws.

    Returns:
      Its settings, whether it had such a space, and the tokenizer.
    """

    def read() -> tuple[dict[str, Any], bool, tokenizers.Tokenizer]:
        settings = json.loads(tokenizer_json)
        had_dummy_prefix = _remove_dummy_prefix(settings)
        unwanted = [settings.pop(name, None) for name in ("truncation", "padding")]
        unwanted.append(settings["model"].pop("dropout", None))  # skips merges at random
        changed = had_dummy_prefix or any(part is not None for part in unwanted)
        # Writing a large vocabulary takes longer than reading it.
        text = json.dumps(settings) if changed else tokenizer_json
        return settings, had_dummy_prefix, tokenizers.Tokenizer.from_str(text)

    return naming_library_errors(read, "this is not a tokenizer.json")


def _remove_dummy_prefix(settings: dict[str, Any]) -> bool:
    """Switches off, in place, what puts a space before the first word; tells whether any did."""
    found = False
    for part in _parts(settings.get("pre_tokenizer"), "pretokenizers"):
        if part["type"] == "ByteLevel":
            found |= part["add_prefix_space"]
            part["add_prefix_space"] = False
        elif part["type"] == "Metaspace":
            found |= part.get("prepend_scheme", "always") != "never"
            part["prepend_scheme"] = "never"
            part.pop("add_prefix_space", None)  # the name of older files
    normalizer = settings.get("normalizer")
    kept = [p for p in _parts(normalizer, "normalizers") if not _prepends(p)]
    if len(kept) < len(_parts(normalizer, "normalizers")):
        found = True
        settings["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    return found


def _prepends(part: dict[str, Any]) -> bool:
    """Whether a part of a normaliser puts a space before the first word."""
    match part:
        case {"type": "Replace", "pattern": {"Regex": str(start)}, "content": "\u2581"}:
            return start.startswith(PREFIX_PATTERN)
        case _:
            return part["type"] == "Prepend"


def _parts(component: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Returns the parts of a component, with sequences flattened."""
    if component is None:
        return []
    if component["type"] == "Sequence":
        return [part for inner in component[name] for part in _parts(inner, name)]
    return [component]


def _splits_before_spaces(settings: dict[str, Any]) -> bool:
    """Whether texts are always split before a space that follows anything but white space.

    True only for the ways of splitting that are known here. The parts are tokenised independently,
    and what follows a part doesn't change it.
    """
    words: list[str] = []
    for part in _parts(settings.get("pre_tokenizer"), "pretokenizers"):
        match part:
            case {"type": "ByteLevel"}:
                words += ["GPT-2"] if part.get("use_regex", True) else []
            case {"type": "Split", "behavior": "Isolated", "invert": False}:
                words.append(part["pattern"].get("Regex", ""))
            case {"type": "Digits"}:
                pass  # further splits, at digits
            case _:
                return False
    normalizers = _parts(settings.get("normalizer"), "normalizers")
    return (
        words in (["GPT-2"], [LLAMA_3_WORDS], [QWEN_WORDS])
        and all(part["type"] == "NFC" for part in normalizers)  # joins nothing to a space
        and not any(map(_may_cross_a_split, settings.get("added_tokens", [])))
    )


def _may_cross_a_split(token: dict[str, Any]) -> bool:
    """Whether an added token may extend over a space after a word, or depends on what is around."""
    around = any(token.get(name) for name in ("single_word", "lstrip", "rstrip"))
    return around or re.search(r"\S ", token["content"]) is not None


def _is_byte_level(settings: dict[str, Any]) -> bool:
    parts = [
        *_parts(settings.get("pre_tokenizer"), "pretokenizers"),
        *_parts(settings.get("normalizer"), "normalizers"),
    ]
    return any(part["type"] == "ByteLevel" for part in parts)


def _byte_ids(tokenizer: tokenizers.Tokenizer, settings: dict[str, Any]) -> list[int | None]:
    if _is_byte_level(settings):
        names = {byte: character for character, byte in _byte_of_character().items()}
    else:
        names = {byte: f"<0x{byte:02X}>" for byte in range(BYTES)}
    return [tokenizer.token_to_id(names[byte]) for byte in range(BYTES)]


def _bytes_of_tokens(
    tokenizer: tokenizers.Tokenizer, settings: dict[str, Any]
) -> list[bytes | None]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    byte_level = _is_byte_level(settings)
    byte_characters = _byte_characters()
    size = max(vocabulary.values(), default=-1) + 1
    if not 0 < size <= MAXIMUM_SIZE:
        raise VocabularyError(
            f"the tokenizer has ids up to {size - 1}, not 0 to {MAXIMUM_SIZE - 1}"
        )
    result: list[bytes | None] = [None] * size
    for token, id in vocabulary.items():
        if id in added and added[id].special:
            continue  # not text
        name = added[id].content if id in added else token
        if byte_level and id in added:
            result[id] = name.encode("utf-8")  # it isn't written in the alphabet for bytes
        elif byte_level:
            # A token with another character can't come from text; it stays None.
            try:  # `contextlib.suppress` would take as long as the rest
                result[id] = name.translate(byte_characters).encode("latin-1")
            except UnicodeEncodeError:
                continue
        elif (byte := byte_of_piece(name)) is not None:
            result[id] = bytes([byte])
        else:
            result[id] = name.replace(_SPACE, " ").encode("utf-8")
    return result


def _byte_characters() -> dict[int, int]:
    """For `str.translate`: each character of the alphabet to the one whose code is its byte.

    Other characters that Latin-1 could encode go to one that it can't.
    """
    alphabet = {ord(character): byte for character, byte in _byte_of_character().items()}
    return dict.fromkeys(range(BYTES), 0xFFFF) | alphabet


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet for bytes: printable Latin-1 as itself, the others from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(BYTES) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet
