"""Tokenizers of the published families' kinds give the ids that `transformers` does.

See tokenizers/make_tokenizers.py for the reference.
"""

import copy
import json
import pathlib
import shutil

import pytest
import sentencepiece
import tokenizers
from vocabulary_fixtures import trained

from gophercite.prompts import encode_text
from gophercite.vocabularies import Vocabulary, VocabularyError, load_vocabulary
from gophercite.vocabularies.prompt_form import PromptForm

FOLDER = pathlib.Path(__file__).parents[1] / "tokenizers"
KINDS = ("llama3", "qwen", "gpt2", "gpt_neox", "llama2", "gemma")

# Beginnings of texts with other ids there: what `transformers` itself does not give back is spelled
# by bytes here, and a space after Llama's dummy prefix is SentencePiece's.
CHANGED = {
    "qwen": ("e\u0301 ",),  # composed
    "gpt_neox": ("e\u0301 ",),
    "llama2": ("\u2581", " "),
    "gemma": ("\u2581",),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def vocabulary(kind: str) -> Vocabulary:
    return load_vocabulary(FOLDER / kind)


def reference(kind: str) -> list[tuple[str, list[int]]]:
    """Texts, and the ids of prompts that consist of them."""
    cases = json.loads((FOLDER / kind / "ids.json").read_text("utf-8"))
    return [(case["text"], case["ids"]) for case in cases if case["text"]]


def is_changed(kind: str, text: str) -> bool:
    return text.startswith(CHANGED.get(kind, ()))


def test_prompts_have_the_ids_of_transformers(kind: str, vocabulary: Vocabulary) -> None:
    for text, expected in reference(kind):
        if not is_changed(kind, text):
            assert encode_text(vocabulary, text) == expected, repr(text)


def test_every_token_spells_its_bytes(kind: str, vocabulary: Vocabulary) -> None:
    for text, ids in reference(kind):
        assert vocabulary.decode(vocabulary.encode(text)) == text
        spelled = b"".join(vocabulary.token_bytes(id) or b"" for id in ids)
        if not is_changed(kind, text):
            prefix = " " if vocabulary.dummy_prefix else ""
            assert spelled.decode("utf-8") == prefix + text


@pytest.mark.parametrize("name", CHANGED)
def test_texts_that_are_changed_are_spelled_all_the_same(name: str) -> None:
    vocabulary = load_vocabulary(FOLDER / name)
    changed = [(text, ids) for text, ids in reference(name) if is_changed(name, text)]
    assert changed
    for text, ids in changed:
        assert encode_text(vocabulary, text) != ids
        assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize("name", ["llama2", "gemma"])
def test_a_sentencepiece_model_gives_its_own_tokens_here_and_exported(
    name: str, tmp_path: pathlib.Path
) -> None:
    vocabulary = load_vocabulary(FOLDER / name)
    model = (FOLDER / name / "tokenizer.model").read_bytes()
    own = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary.export(tmp_path)
    exported = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text, _ in reference(name):
        expected = [own.bos_id(), *own.encode(text)]
        assert exported.encode(text).ids == expected, repr(text)
        if "\u2581" not in text:
            assert encode_text(vocabulary, text) == expected, repr(text)
    assert (tmp_path / "tokenizer.model").read_bytes() == model


def with_config(kind: str, folder: pathlib.Path, **changes: object) -> pathlib.Path:
    """A copy of a tokenizer with other fields in its configuration."""
    shutil.copytree(FOLDER / kind, folder)
    path = folder / "tokenizer_config.json"
    fields = json.loads(path.read_text("utf-8")) | changes
    path.write_text(json.dumps(fields), "utf-8")
    return folder


# What `transformers` 5.23.0 puts before a text, for each kind with a changed configuration. The
# last one is the published word against the file's; `transformers` goes by the file alone.
BEGINNINGS = [
    ("llama2", {"add_bos_token": False}, False),
    ("llama3", {"add_bos_token": False}, True),
    ("llama3", {"bos_token": None}, True),
    ("gpt_neox", {}, False),
    ("gpt_neox", {"add_bos_token": False}, False),
    ("gpt_neox", {"add_bos_token": True}, True),
]


@pytest.mark.parametrize(("kind", "changes", "begins"), BEGINNINGS)
def test_texts_begin_as_the_tokenizer_begins_them(
    kind: str, changes: dict[str, object], begins: bool, tmp_path: pathlib.Path
) -> None:
    vocabulary = load_vocabulary(with_config(kind, tmp_path / "changed", **changes))
    plain = vocabulary.encode(" a" if vocabulary.dummy_prefix else "a")
    assert encode_text(vocabulary, "a")[begins:] == plain
    assert (vocabulary.bos_id is not None) == begins
    vocabulary.save(tmp_path / "saved")
    assert encode_text(load_vocabulary(tmp_path / "saved"), "a") == encode_text(vocabulary, "a")


def test_a_sentencepiece_models_own_tokenizer_json_says_how_texts_begin(
    tmp_path: pathlib.Path,
) -> None:
    load_vocabulary(with_config("gemma", tmp_path / "none", add_bos_token=False)).export(tmp_path)
    exported = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert encode_text(load_vocabulary(tmp_path), "a") == exported.encode("a").ids
    config = {"add_bos_token": True, "eos_token": "<eos>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    assert load_vocabulary(tmp_path).bos_id is None


def test_two_tokenizers_that_are_not_the_same_are_refused(tmp_path: pathlib.Path) -> None:
    """As where a model has got another tokenizer, and an old file of it stayed."""
    shutil.copy(FOLDER / "llama2" / "tokenizer.model", tmp_path)
    shutil.copy(FOLDER / "llama3" / "tokenizer.json", tmp_path)
    message = (
        r"tokenizer\.model: token 0 is '<unk>' here and '.*' in tokenizer\.json: .* not the same"
    )
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(tmp_path)


def test_several_tokens_before_a_text_are_refused(tmp_path: pathlib.Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "llama3" / "tokenizer.json"))
    two = [("<|begin_of_text|>", 0), ("<|end_of_text|>", 1)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "<|begin_of_text|> <|end_of_text|> $A", special_tokens=two
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VocabularyError, match=r"tokenizer\.json: .*with 2 tokens of its own"):
        load_vocabulary(tmp_path)


def test_a_beginning_that_is_neither_true_nor_false_is_named(tmp_path: pathlib.Path) -> None:
    folder = with_config("llama2", tmp_path / "changed", add_bos_token="yes")
    with pytest.raises(VocabularyError, match="field 'add_bos_token': expected true, false"):
        load_vocabulary(folder)


TURN = "<end_of_turn>"


def with_ends(folder: pathlib.Path, name: str, ends: object) -> pathlib.Path:
    """A tokenizer's folder, and what a file beside it says ends an answer."""
    (folder / name).write_text(json.dumps({"eos_token_id": ends}), "utf-8")
    return folder


def test_a_model_may_have_several_ends(tmp_path: pathlib.Path) -> None:
    plain = load_vocabulary(FOLDER / "gemma")
    (turn,) = plain.encode(TURN)
    assert plain.other_eos_ids == ()
    folder = with_config("gemma", tmp_path / "changed")
    with_ends(folder, "generation_config.json", [plain.eos_id, turn, 10**6])
    vocabulary = load_vocabulary(folder)
    assert vocabulary.other_eos_ids == (turn, 10**6)
    assert vocabulary.token_bytes(turn) is None
    text = f"The end {TURN} of it."
    assert turn not in vocabulary.encode(text)
    assert vocabulary.decode([*vocabulary.encode(text), turn]) == text
    vocabulary.save(tmp_path / "saved")
    assert load_vocabulary(tmp_path / "saved").other_eos_ids == vocabulary.other_eos_ids


def test_the_generation_s_own_ends_come_before_the_model_s(tmp_path: pathlib.Path) -> None:
    folder = with_ends(with_config("llama3", tmp_path / "changed"), "config.json", [1, 5])
    assert load_vocabulary(folder).other_eos_ids == (5,)
    with_ends(folder, "generation_config.json", None)
    assert load_vocabulary(folder).other_eos_ids == (5,)
    with_ends(folder, "generation_config.json", 7)
    assert load_vocabulary(folder).other_eos_ids == (7,)


@pytest.mark.parametrize("value", ["1", [1, "2"], [True], -1, {}])
def test_ends_that_are_none_are_named(value: object, tmp_path: pathlib.Path) -> None:
    folder = with_config("llama3", tmp_path / "changed")
    with_ends(folder, "generation_config.json", value)
    message = r"generation_config\.json: field 'eos_token_id': expected a token's id or a list"
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(folder)


def test_chat_templates_are_kept(tmp_path: pathlib.Path) -> None:
    template = load_vocabulary(FOLDER / "qwen").chat_template
    assert template is not None
    assert template.startswith("{% for message in messages %}<|im_start|>")
    load_vocabulary(FOLDER / "qwen").save(tmp_path)
    assert load_vocabulary(tmp_path).chat_template == template
    assert load_vocabulary(FOLDER / "llama3").chat_template is None


@pytest.mark.parametrize("name", ["qwen", "sentence_piece"])
def test_the_form_of_prompts_is_kept(name: str, tmp_path: pathlib.Path) -> None:
    vocabulary = trained() if name == "sentence_piece" else load_vocabulary(FOLDER / name)
    vocabulary = copy.copy(vocabulary)
    vocabulary.save(tmp_path / "without")
    assert not (tmp_path / "without" / "prompt.json").exists()
    assert PromptForm.of(load_vocabulary(tmp_path / "without")) == PromptForm(False, None)
    for form in (
        PromptForm(True, None),
        PromptForm(False, 1024),
        PromptForm(True, 192),
        PromptForm(several_pages=True),
    ):
        form.give(vocabulary)
        vocabulary.save(tmp_path / "with")
        assert PromptForm.of(load_vocabulary(tmp_path / "with")) == form
        (tmp_path / "exported").mkdir(exist_ok=True)
        vocabulary.export(tmp_path / "exported")
        assert PromptForm.of(load_vocabulary(tmp_path / "exported")) == form


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"several_pages": "five"}', r"field 'several_pages': expected true or false, got .*five"),
        ('{"question_first": 1}', r"field 'question_first': expected true or false, got .*1"),
        ('{"trained_length": 0}', r"'trained_length': expected a positive number .*, got .*0"),
        ('{"trained_length": true}', r"'trained_length': expected a positive .*, got .*true"),
        ('{"trained_length": "512"}', r"'trained_length': expected a positive .*, got .*512"),
        ('{"question_first": true, "pages": "last"}', r"field 'pages' is not known"),
        ("[true]", r"prompt\.json"),
        ("{", r"prompt\.json"),
    ],
)
def test_an_unknown_form_of_prompts_is_refused(
    content: str, message: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((FOLDER / "qwen" / "tokenizer.json").read_bytes())
    (tmp_path / "prompt.json").write_text(content, "utf-8")
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(tmp_path)


def test_of_several_templates_the_default_one_is_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((FOLDER / "qwen" / "tokenizer.json").read_bytes())
    templates = [
        {"name": "tools", "template": "t"},
        {"name": "default", "template": "d"},
    ]
    config = {"eos_token": "<|im_end|>", "chat_template": templates}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    assert load_vocabulary(tmp_path).chat_template == "d"


@pytest.mark.parametrize(
    ("template", "said"), [(7, "number 7"), ([{"name": []}], "list"), ([{"name": "x"}, 7], "list")]
)
def test_a_template_that_is_none_is_named(
    template: object, said: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((FOLDER / "qwen" / "tokenizer.json").read_bytes())
    config = {"eos_token": "<|im_end|>", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json: field 'chat_template'.*{said}"):
        load_vocabulary(tmp_path)
