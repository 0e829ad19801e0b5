"""Makes the small tokenizers beside this file, and the ids that `transformers` has for hard texts.

Needs transformers, sentencepiece and protobuf, of which the tests need the last two only:

    python tests/tokenizers/make_tokenizers.py

One of each kind that the published families have, trained on the lines below. `ids.json` holds the
texts with the ids of a prompt that begins with them, special tokens of the beginning included.
"""

import json
import pathlib
from collections.abc import Iterator

import sentencepiece
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent

LINES = [
    "The lighthouse of Ormsby was built in 1874 by the engineer Ada Fenwick.",
    "It stands 31 metres above the harbour; its lamp was lit with whale oil until 1902.",
    "Page: Ormsby\nThe town lies on the river Ilse.\n\nQuestion: Where is Ormsby?\nAnswer:",
    " %<In 1874.>%(Ormsby)%[was built in 1874]%",
    "Çà et là, naïve façades — “quoted” – 100 % €5, don't they'll we've.",
    "def read(path):\n    with open(path) as file:\n        return [line for line in file]\n",
    "港の灯台は一八七四年に建てられた。灯台は港の上に立つ。",
    "Маяк был построен в 1874 году. Маяк стоит над гаванью.",
] * 8

TEXTS = [
    *LINES[:8],
    "%<Claim>%(Title)%[Quote]%",
    "%<a>%(b)%[c]%%<d>%(e)%[f]%",
    "a%<b  >% (c)%[ d]%\n",
    "👨\u200d👩\u200d👧 🇫🇷 👍🏽 ☃️",
    "日本語と中文，한국어와 العربية",
    "e\u0301 \u1100\u1161 ﬁ ① Å \u212b",
    "\x00 \x01\x1f \x7f \x85 \u200b \ufeff \u2028",
    "tabs\t\tand   spaces    here",
    "lines\n\n\nand\r\nlines \n  \n",
    "for (int i = 0; i < n; ++i) { x[i] += 0x1F; } // done",
    "    if x:\n        return {'a': [1, 2], \"b\": None}",
    "https://example.org/a_b?c=d&e=%20f#g",
    "12345678 3.14159 1,000,000 2026-11-22",
    "CamelCase snake_case SCREAMING_CASE it's IT'S we'LL",
    "\U0001f9ff\U000e0001\U0010ffff\ue000",
    "\u2581underlined\u2581",
    "ends with a space ",
    " begins with one",
    "<0x41> Ġ Ċ â",
    "a",
    " ",
    "",
]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# How the families cut texts into words before they merge bytes.
LLAMA_3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_WORDS = LLAMA_3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(words: str | None, special: list[str], compose: bool) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer; without a pattern for words, GPT-2's."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if compose:
        tokenizer.normalizer = normalizers.NFC()
    if words is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=460, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def byte_level_kinds() -> Iterator[tuple[str, tokenizers.Tokenizer, dict[str, object]]]:
    """Tokenizers that come as `tokenizer.json`, and what stands in their configurations."""
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    llama = byte_level(LLAMA_3_WORDS, [begin, end], compose=False)
    first = processors.TemplateProcessing(f"{begin} $A", special_tokens=[(begin, 0)])
    llama.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), first])
    yield "llama3", llama, {"bos_token": begin, "eos_token": end}
    qwen = byte_level(QWEN_WORDS, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], compose=True)
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None}
    yield "qwen", qwen, {**names, "add_bos_token": False, "chat_template": CHAT_TEMPLATE}
    gpt2 = byte_level(None, ["<|endoftext|>"], compose=False)
    yield "gpt2", gpt2, {"eos_token": "<|endoftext|>", "add_bos_token": False}
    neox = byte_level(None, ["<|endoftext|>"], compose=True)
    neox.add_tokens([tokenizers.AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    neox.post_processor = processors.ByteLevel(trim_offsets=True)
    # It has a token by that name, as published, and begins no text with it.
    yield "gpt_neox", neox, {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}


def sentence_piece(folder: pathlib.Path, **own: object) -> None:
    """A SentencePiece model as Llama 2 and Gemma have theirs: BPE with byte fallback."""
    with (folder / "tokenizer.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_writer=file,
            model_type="bpe",
            vocab_size=600,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            minloglevel=2,
            **own,
        )


def write(folder: pathlib.Path, config: dict[str, object]) -> None:
    """Writes the configuration, and what `transformers` makes of the texts."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", "utf-8")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cases = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "ids.json").write_text(f"[\n{lines}\n]\n", "utf-8")


def main() -> None:
    """Writes a folder for each kind."""
    for name, tokenizer, config in byte_level_kinds():
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        write(folder, {"tokenizer_class": "PreTrainedTokenizerFast", **config})
    special = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    llama = FOLDER / "llama2"
    llama.mkdir(exist_ok=True)
    sentence_piece(llama)
    write(llama, {"tokenizer_class": "LlamaTokenizer", "legacy": False, **special})
    gemma = FOLDER / "gemma"
    gemma.mkdir(exist_ok=True)
    symbols = ["<start_of_turn>", "<end_of_turn>", "\n", "\n\n", *("▁" * n for n in range(2, 17))]
    sentence_piece(
        gemma,
        add_dummy_prefix=False,
        user_defined_symbols=symbols,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
    )
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True}
    write(gemma, {"tokenizer_class": "GemmaTokenizer", "pad_token": "<pad>", **special})


if __name__ == "__main__":
    main()
