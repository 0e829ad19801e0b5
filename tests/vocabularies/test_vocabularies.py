"""Vocabularies: every text is spelled exactly, by every kind of tokenizer."""

import functools
import io
import itertools
import json
import pathlib
import re
import unicodedata
from collections.abc import Iterable

import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import (
    TEXTS,
    byte_level_json,
    llama_like_model,
    metaspace_json,
    normalising_model,
    trained,
    vocabularies,
)

from gophercite import evidence
from gophercite.vocabularies import (
    HuggingFaceVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    VocabularyError,
    load_vocabulary,
    train_sentencepiece,
)

KINDS = (
    "unigram",
    "bpe",
    "llama",
    "normalising",
    "byte-level",
    "byte-level, prefix",
    "byte-level, NFC",
    "metaspace",
    "metaspace, prepend",
    "metaspace, none",
)

# What tokenizers treat as special, change, drop, or mistake for a token of theirs.
TRICKY = [
    *evidence.MARKS,
    *(" %<", "\u2581", "\u2581a", " ", "  ", "\n", "\r\n", "\t", "\x00", "\x7f", "\x85", "\u00a0"),
    *("<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<0x41>", "<0xFF>", " \u2047 "),
    *("e\u0301", "\u1100\u1161", "ﬁ", "①", "Å", "\u212b", "\u200d", "\u200b", "\ufeff", "\ufffd"),
    *("👨\u200d👩\u200d👧", "🇫🇷", "日本語", "\ue000", "\U000e0001", "\U0010ffff", "1874", "Ġ", "Ċ"),
    *("The lighthouse", " of Ormsby", "the", "Page: ", "Answer:"),
]
texts = st.lists(
    st.one_of(st.sampled_from(TRICKY), st.characters(exclude_categories=("Cs",))), max_size=10
).map("".join)


@pytest.fixture(params=KINDS)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return vocabularies()[request.param]


def assert_exact(vocabulary: Vocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert all(0 <= id < vocabulary.size for id in ids)
    assert vocabulary.decode(ids) == text
    spelled = [vocabulary.token_bytes(id) for id in ids]
    assert None not in spelled
    assert b"".join(part for part in spelled if part) == text.encode("utf-8")


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=texts)
def test_every_text_is_spelled_exactly(kind: str, text: str) -> None:
    assert_exact(vocabularies()[kind], text)


def test_characters_of_all_planes(vocabulary: Vocabulary) -> None:
    for start in range(0, 0x110000, 0x1000):
        characters = [chr(code) for code in range(start, start + 0x1000, 41)]
        assert_exact(vocabulary, "".join(c for c in characters if not "\ud800" <= c <= "\udfff"))
    for text in TRICKY:
        assert_exact(vocabulary, text)
        assert_exact(vocabulary, f" a{text}{text} b")


def test_special_tokens_spell_nothing(vocabulary: Vocabulary) -> None:
    special = {vocabulary.pad_id, vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id} - {None}
    ids = vocabulary.encode("harbour")
    for id in special:
        assert id is not None
        assert vocabulary.token_bytes(id) is None
        assert vocabulary.decode([id, *ids, id]) == "harbour"


def test_every_byte_has_a_token(vocabulary: Vocabulary) -> None:
    spelled = {vocabulary.token_bytes(id) for id in range(vocabulary.size)}
    assert {bytes([byte]) for byte in range(256)} <= spelled


def test_text_never_becomes_a_special_token(vocabulary: Vocabulary) -> None:
    special = {vocabulary.pad_id, vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id}
    for text in ("</s>", "a</s> b", "<s><unk>", "<|endoftext|>", "x<|endoftext|>"):
        assert not special & set(vocabulary.encode(text))


def test_lone_surrogates_are_refused_by_name(vocabulary: Vocabulary) -> None:
    with pytest.raises(VocabularyError, match=r"'\\ud800' at character 2.*normalise_text"):
        vocabulary.encode("ab\ud800")


def test_cut_characters_decode_to_the_replacement_character(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode("\U0010fffe")  # in no vocabulary: bytes
    assert len(ids) == 4
    assert vocabulary.decode(ids[:3]) == "\ufffd"


def test_saved_and_loaded_again_it_is_the_same(
    vocabulary: Vocabulary, tmp_path: pathlib.Path
) -> None:
    vocabulary.save(tmp_path / "vocabulary")
    loaded = load_vocabulary(tmp_path / "vocabulary")
    of_model = load_vocabulary(tmp_path)  # a model's folder holds its vocabulary's
    for name in ("size", "pad_id", "eos_id", "bos_id", "unk_id", "dummy_prefix"):
        assert getattr(loaded, name) == getattr(vocabulary, name)
        assert getattr(of_model, name) == getattr(vocabulary, name)
    for text in (*TEXTS, *TRICKY):
        assert loaded.encode(text) == vocabulary.encode(text)
    every = range(vocabulary.size)
    assert [loaded.token_bytes(i) for i in every] == [vocabulary.token_bytes(i) for i in every]


# --- parity with the tokenizers themselves, where these are exact ---


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_tokens_are_the_models_own(text: str) -> None:
    llama = SentencePieceVocabulary(llama_like_model())
    reference = sentencepiece.SentencePieceProcessor(model_proto=llama_like_model())
    assert llama.dummy_prefix
    assert llama.encode(" " + text) == reference.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_hugging_face_tokens_are_the_tokenizers_own(text: str) -> None:
    for content in (byte_level_json(), metaspace_json("none")):
        reference = tokenizers.Tokenizer.from_str(content)
        assert HuggingFaceVocabulary(content).encode(text) == reference.encode(text).ids
    for content in (metaspace_json("prepend"), byte_level_json(add_prefix_space=True)):
        vocabulary = HuggingFaceVocabulary(content)
        assert vocabulary.dummy_prefix
        if not text.startswith(" "):
            reference = tokenizers.Tokenizer.from_str(content)
            assert vocabulary.encode(" " + text) == reference.encode(text).ids


def test_normalising_models_keep_what_they_would_change() -> None:
    vocabulary = SentencePieceVocabulary(normalising_model())
    reference = sentencepiece.SentencePieceProcessor(model_proto=normalising_model())
    assert reference.decode(reference.encode("ﬁve  fishes")) == "five fishes"
    assert vocabulary.decode(vocabulary.encode("ﬁve  fishes")) == "ﬁve  fishes"
    composed = unicodedata.normalize("NFC", "e\u0301")
    assert vocabulary.encode("e\u0301") != vocabulary.encode(composed)


# --- training ---


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_trained_models(model_type: str) -> None:
    vocabulary = trained(model_type)
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
    assert vocabulary.bos_id is None
    assert not vocabulary.dummy_prefix
    assert vocabulary.size <= 480
    for symbol in (*evidence.MARKS, " %<", "\n"):
        assert len(vocabulary.encode(symbol)) == 1
    assert len(vocabulary.encode(" Ormsby")) < len(" Ormsby")
    digits = vocabulary.encode("31874")
    assert [vocabulary.token_bytes(id) for id in digits] == [b"3", b"1", b"8", b"7", b"4"]


def test_training_is_reproducible_and_marks_are_optional() -> None:
    first, second = (train_sentencepiece(TEXTS, 400) for _ in range(2))
    assert all(first.token_bytes(id) == second.token_bytes(id) for id in range(first.size))
    plain = train_sentencepiece(TEXTS, 400, reserved_marks=False)
    assert len(plain.encode("%<")) == 2


def test_long_lines_are_not_left_out() -> None:
    line = "zyzzyva quokka " * 4_000
    vocabulary = train_sentencepiece([line], 300, "bpe")
    assert len(vocabulary.encode(line)) < len(line) / 4


@pytest.mark.parametrize(("texts", "size"), [(TEXTS, 200), ([], 400), ([""], 400)])
def test_training_that_cannot_work_is_refused(texts: list[str], size: int) -> None:
    with pytest.raises(VocabularyError):
        train_sentencepiece(texts, size)


# --- added tokens ---


def with_added(content: str, name: str, **rules: bool) -> HuggingFaceVocabulary:
    """A tokenizer with a further token, not special; two pieces are merged into it."""
    parts = json.loads(content)
    ids, merges = parts["model"]["vocab"], parts["model"]["merges"]
    token = {"id": ids.setdefault(name, len(ids)), "content": name}
    no_rules = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    parts["added_tokens"].append(token | no_rules | rules)
    if len(name) == 2 and set(name) <= ids.keys():
        merges.insert(0, list(name))
    return HuggingFaceVocabulary(json.dumps(parts))


def test_an_added_token_with_spaces_spells_them() -> None:
    """As published Gemma's: a page with two spaces side by side has one token for them."""
    vocabulary = with_added(metaspace_json("none"), "\u2581\u2581")
    page = "The harbour. " * 40
    (id,) = vocabulary.encode("  ")
    assert vocabulary.token_bytes(id) == b"  "
    assert vocabulary.encode(f"town  {page}") == [
        *vocabulary.encode("town"), id, *vocabulary.encode(page)
    ]  # fmt: skip
    assert id not in vocabulary.encode("\u2581\u2581")
    for text in TRICKY:
        assert_exact(vocabulary, f"{text}\u2581\u2581  {text}")


def test_an_added_token_that_is_special_spells_nothing() -> None:
    vocabulary = with_added(metaspace_json("none"), "<turn>", special=True)
    assert vocabulary.token_bytes(vocabulary.size - 1) is None
    assert vocabulary.size - 1 not in vocabulary.encode("A <turn>")


@pytest.mark.parametrize("name", ["\u2581", "<0xE2>"])
def test_an_added_token_may_be_a_piece_that_stands_for_something_else(name: str) -> None:
    vocabulary = with_added(metaspace_json("none"), name)
    assert_exact(vocabulary, f"\u2603 {name} is a name")


def test_what_a_tokenizer_changes_leaves_the_rest_of_a_text_whole() -> None:
    """The token takes the space before it, so that one place in the page is spelled otherwise."""
    vocabulary = with_added(metaspace_json("none"), "]%", lstrip=True)
    page = "The harbour of Ormsby. " * 20
    text = f"{page} ]% {page}"
    assert_exact(vocabulary, text)
    assert len(vocabulary.encode(text)) < 2 * len(vocabulary.encode(page)) + 40


def test_a_tokenizer_that_drops_merges_at_random_does_not_do_so_here() -> None:
    parts = json.loads(byte_level_json())
    parts["model"]["dropout"] = 0.5
    ids = HuggingFaceVocabulary(json.dumps(parts)).encode(TEXTS[0])
    assert ids == HuggingFaceVocabulary(byte_level_json()).encode(TEXTS[0])


# --- loading ---


def test_what_is_no_vocabulary_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such vocabulary"):
        load_vocabulary(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"holds no vocabulary.*tokenizer\.json"):
        load_vocabulary(tmp_path)
    for name in ("broken.model", "broken.json", "broken.txt"):
        (tmp_path / name).write_text("{")
        with pytest.raises(VocabularyError, match=name):
            load_vocabulary(tmp_path / name)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(VocabularyError, match=r"tokenizer\.model"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "name", ["a b", "a\x00", "\xa0", "a\xad", "\u0144", "\u2581a", "a\uffff", "\U0001f600"]
)
def test_a_byte_level_token_with_a_character_that_is_no_byte_spells_nothing(name: str) -> None:
    content = json.loads(byte_level_json())
    id = len(content["model"]["vocab"]) + 10
    content["model"]["vocab"][name] = id
    assert HuggingFaceVocabulary(json.dumps(content)).token_bytes(id) is None


def test_tokenizers_that_cannot_spell_everything_are_refused(tmp_path: pathlib.Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=120,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(VocabularyError, match="0 of 256 byte pieces"):
        SentencePieceVocabulary(model.getvalue())
    content = json.loads(byte_level_json())
    del content["model"]["vocab"]["Ġ"]
    content["model"]["merges"] = []
    content["model"]["vocab"] = {
        token: id for token, id in content["model"]["vocab"].items() if len(token) == 1
    }
    with pytest.raises(VocabularyError, match="lacks 1 of 256 byte tokens, 0x20 among them"):
        HuggingFaceVocabulary(json.dumps(content))


def lacking(missing: Iterable[int]) -> HuggingFaceVocabulary:
    """A byte-level tokenizer without some bytes, as SmolLM2's."""
    content = json.loads(byte_level_json())
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(number) for number in itertools.count(0x100))
    names = {byte: chr(byte) if byte in printable else next(others) for byte in range(256)}
    tokens = [*(names[byte] for byte in range(256) if byte not in missing), "<|endoftext|>"]
    content["model"] |= {"vocab": {token: id for id, token in enumerate(tokens)}, "merges": []}
    content["added_tokens"] = [content["added_tokens"][0] | {"id": len(tokens) - 1}]
    return HuggingFaceVocabulary(json.dumps(content))


LACKED = frozenset({0x04, 0x06, 0x13, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)})


def is_lacked(character: str) -> bool:
    return not LACKED.isdisjoint(character.encode())


SCRAPS = "ab é☃😀\x04\x06\x05\U00040000\U000bffff\U000c0000\U0010ffff\ufffd"


@given(st.text(st.sampled_from(SCRAPS)))
def test_characters_that_can_not_be_spelled_are_replaced_and_all_else_is_exact(text: str) -> None:
    vocabulary = walled()
    assert vocabulary.missing_bytes == LACKED
    shown = "".join("\ufffd" if is_lacked(c) else c for c in text)
    assert vocabulary.decode(vocabulary.encode(text)) == shown
    assert vocabulary.spells(text) == (not any(map(is_lacked, text)))
    parts = [text[start:end] for start, end in vocabulary.spelled_parts(text)]
    assert parts == [run for run in re.split("[\x04\x06\U00040000-\U000bffff]", text) if run]


@functools.cache
def walled() -> HuggingFaceVocabulary:
    return lacking(LACKED)


@pytest.mark.parametrize("byte", [0x0A, 0x25, 0x80, 0xBF, 0xC3, 0xE2, 0xF0])
def test_bytes_without_which_scripts_or_marks_can_not_be_spelled_are_needed(byte: int) -> None:
    with pytest.raises(VocabularyError, match=f"0x{byte:02X} among them"):
        lacking({byte, 0x04})


def test_bytes_that_no_text_has_are_not_missed() -> None:
    vocabulary = lacking({0xC0, 0xC1, 0xF5, 0xFF})
    assert vocabulary.spells("\U0010ffff\x00")


def test_special_tokens_are_read_from_the_configuration_beside(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tokenizer.json").write_text(byte_level_json())
    config = {"eos_token": {"content": "<|endoftext|>"}, "bos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_vocabulary(tmp_path).bos_id is None  # a name begins no text
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"add_bos_token": True}))
    assert load_vocabulary(tmp_path).bos_id == load_vocabulary(tmp_path).eos_id
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<stop>"}))
    with pytest.raises(VocabularyError, match="no token '<stop>'"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "can't be read as JSON"),
        ("[1]", r"expected an object, got the list \[1\]"),
        ('{"eos_token": 7}', "field 'eos_token': expected the name of a token, got the number 7"),
        ('{"pad_token": {"content": []}}', "field 'pad_token': expected the name of a token"),
        (r'{"bos_token": "\ud800"}', r"can't be read as JSON \(it holds the lone surrogate '\\ud8"),
        (r'{"chat_template": "\ud800"}', r"can't be read as JSON \(it holds the lone surrogate"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path: pathlib.Path, config: str, message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(byte_level_json())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(VocabularyError, match=r"tokenizer_config\.json: " + message):
        load_vocabulary(tmp_path)
