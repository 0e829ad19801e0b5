"""Exported checkpoints, loaded and run by `transformers`: the table of docs/weights.md.

Needs torch and transformers (the extra `benchmarks`), which the tests themselves don't:

    python -m tests.weights.compare_exports

Every small checkpoint is imported and exported again. `transformers` loads the result with its
tokenizer, computes the reference's logits, and writes on greedily.
"""

import pathlib
import tempfile

import torch
import transformers

from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights
from tests.weights import parity
from tests.weights.samples import FAMILIES, WITH_IMAGES, checkpoint

TEXT = "née “Orm”, 1874 ☃ %<Claim>%(Title)%[Quote]%"
NEW_TOKENS = 12


def compare(family: str, folder: pathlib.Path) -> tuple[str, float, bool, bool]:
    """The class that loads an export, its logits' largest difference, and what else agrees."""
    source = checkpoint(family, folder / "source")
    import_weights(source, folder / "model")
    export_weights(folder / "model", folder / "exported")
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(folder / "exported", dtype=torch.float32, attn_implementation="eager")
    sequences, expected = parity.reference(family)
    with torch.no_grad():
        found = [model(torch.from_numpy(row)[None]).logits[0].numpy() for row in sequences]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "exported")
    asked = tokenizer(TEXT, return_tensors="pt")
    greedy = {"do_sample": False, "max_new_tokens": NEW_TOKENS}
    written = [
        each.generate(**asked, **greedy)[0].tolist()
        for each in (model, load(source, dtype=torch.float32, attn_implementation="eager"))
    ]
    spelled = tokenizer.decode(asked["input_ids"][0]) == TEXT
    difference = parity.largest_difference(found, expected)
    return type(model).__name__, difference, written[0] == written[1], spelled


def main() -> None:
    """Prints a row for each checkpoint."""
    transformers.logging.set_verbosity_error()
    print("| Checkpoint | loaded as | logits | greedy | tokenizer |\n|---|---|---|---|---|")
    for family in (*FAMILIES, WITH_IMAGES):
        with tempfile.TemporaryDirectory() as folder:
            name, difference, same, spelled = compare(family, pathlib.Path(folder))
        print(f"| {family} | {name} | {difference:.1e} | {same} | {spelled} |", flush=True)


if __name__ == "__main__":
    main()
