"""Adapters of others, merged: the same model as the run that exported them, or a refusal."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from gophercite import cli
from gophercite.model_folders.description import renew
from gophercite.model_folders.folder import load_model, load_reward_model, read_vocabulary
from gophercite.models.parameters import HEADS, TRAINED
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.hugging_face import import_weights
from gophercite.weights.peft import export_adapters
from gophercite.weights.peft_import import SECOND_HEAD, merge_adapters
from tests.weights.samples import checkpoint
from tests.weights.test_peft import save_run

LM_HEAD = "base_model.model.lm_head"
TENSORS, CONFIG, MADE_FOR = "adapter_model.safetensors", "adapter_config.json", "gophercite.json"


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> pathlib.Path:
    """A folder with `base`, a `run` with adapters of it, and these as PEFT has them."""
    return made("llama3", tmp_path_factory.mktemp("llama"))


def made(family: str, folder: pathlib.Path) -> pathlib.Path:
    import_weights(checkpoint(family, folder / "source"), folder / "base", dtype="float32")
    save_run(folder / "run", folder / "base")
    export_adapters(folder / "run", folder / "peft")
    return folder


def edited(folder: pathlib.Path, to: pathlib.Path, **fields: object) -> pathlib.Path:
    """The same adapters with other fields in their configuration."""
    shutil.copytree(folder / "peft", to)
    config = json.loads((to / CONFIG).read_text()) | fields
    (to / CONFIG).write_text(json.dumps(config))
    return to


def assert_same(one: pathlib.Path, other: pathlib.Path, rtol: float = 1e-5) -> None:
    first, second = load_model(one).params, load_model(other).params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5), first, second)


@pytest.mark.parametrize("family", ["llama3", "gpt_neox", "gpt2"])
def test_what_a_run_exports_is_the_run_again(
    family: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(family, tmp_path)
    command = ["import-weights", str(folder / "peft"), str(tmp_path / "merged")]
    assert cli.main([*command, "--base", str(folder / "base")]) == 0
    assert_same(tmp_path / "merged", folder / "run")
    model = load_model(tmp_path / "merged")
    assert model.provenance["adapters"]["folder"] == "peft"
    assert len(model.provenance["adapters"]["sha256"]) == 64
    assert cli.main(command) == 1
    assert "--base MODEL" in capsys.readouterr().err


LENGTHS = {"base": None, "run": 448}


@pytest.mark.parametrize(("base_first", "run_first"), [(False, True), (True, False), (True, True)])
def test_adapters_bring_the_form_of_their_prompts_and_their_calibration(
    llama: pathlib.Path, tmp_path: pathlib.Path, base_first: bool, run_first: bool
) -> None:
    for name, first in (("base", base_first), ("run", run_first)):
        shutil.copytree(llama / name, tmp_path / name)
        vocabulary = read_vocabulary(tmp_path / name)
        vocabulary.question_first, vocabulary.trained_length = first, LENGTHS[name]
        vocabulary.save(tmp_path / name / "vocabulary")
        renew(tmp_path / name)
    fields = json.loads((tmp_path / "run" / "model.json").read_text())
    fields["base"] = str(tmp_path / "base")
    (tmp_path / "run" / "model.json").write_text(json.dumps(fields))
    renew(tmp_path / "run")
    export_adapters(tmp_path / "run", tmp_path / "peft")
    (tmp_path / "peft" / "calibration.json").write_text("no JSON")
    with pytest.raises(WeightsError, match=r"calibration\.json"):
        merge_adapters(tmp_path / "peft", tmp_path / "base", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    (tmp_path / "peft" / "calibration.json").write_text('{"answers": []}\n')
    merge_adapters(tmp_path / "peft", tmp_path / "base", tmp_path / "merged")
    merged = read_vocabulary(tmp_path / "merged")
    assert (merged.question_first, merged.trained_length) == (run_first, LENGTHS["run"])
    assert (tmp_path / "merged" / "calibration.json").read_text() == '{"answers": []}\n'


def test_alphas_and_scales_are_peft_s(llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plain, other = load_model(llama / "base").params, {}
    for name, fields in {
        "run": {},
        "doubled": {"lora_alpha": 12.0},
        "root": {"use_rslora": True},
        "values": {"alpha_pattern": {"v_proj": 60.0}},
    }.items():
        adapters = edited(llama, tmp_path / f"{name}_peft", **fields)
        merge_adapters(adapters, llama / "base", tmp_path / name)
        other[name] = load_model(tmp_path / name).params
    # The run's rank is 2 and its alpha 6.
    times = {"doubled": (2, 2), "root": (2**0.5, 2**0.5), "values": (1, 10)}
    for name, (of_queries, of_values) in times.items():
        for matrix, factor in (("query", of_queries), ("value", of_values)):
            base = np.asarray(plain[TRAINED][matrix])
            added = np.asarray(other["run"][TRAINED][matrix]) - base
            found = np.asarray(other[name][TRAINED][matrix]) - base
            assert np.abs(added).max() > 0.1
            np.testing.assert_allclose(found, factor * added, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"lora_alpha": "16"}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"alpha_pattern": {".*q_proj": 4}}, "alpha_pattern"),
        ({"alpha_pattern": {"q_proj": None}}, "alpha_pattern"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"something_new": 3}, "something_new"),
    ],
)
def test_other_kinds_are_refused_by_their_field(llama, tmp_path, fields, named) -> None:
    adapters = edited(llama, tmp_path / "peft", **fields)
    with pytest.raises(WeightsError, match=named):
        merge_adapters(adapters, llama / "base", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop(min(t)), "alone, not both"),
        (
            lambda t: t.update({f"{LM_HEAD}.lora_embedding_A": np.ones((2, 3))}),
            "lm_head",
        ),
        (lambda t: t.update({min(t): t[min(t)][:1]}), "its matrix needs"),
        (lambda t: t.update({min(t): t[min(t)][:, :-1]}), "its matrix needs"),
        (lambda t: t.update({min(t): t[min(t)] * np.float32("nan")}), "not finite"),
        (lambda t: t.update({min(t): t[min(t)].astype(np.int64)}), "must be a matrix"),
        (lambda t: t.clear(), "holds no adapter"),
        (
            lambda t: t.update(
                {name: x[:0] if "lora_A" in name else x[:, :0] for name, x in t.items()}
            ),
            "must be a matrix",
        ),
        (
            lambda t: t.update({name: np.full_like(x, 1e30) for name, x in t.items()}),
            r"module 'model\.layers\..*': the merged matrix .* not finite",
        ),
        (
            lambda t: t.update(
                {name.replace("layers.1.", "layers.9."): t.pop(name) for name in list(t)}
            ),
            "layers.9.",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(llama, tmp_path, change, named) -> None:
    adapters = edited(llama, tmp_path / "peft")
    tensors = safetensors.numpy.load_file(adapters / TENSORS)
    change(tensors)
    safetensors.numpy.save_file(tensors, adapters / TENSORS)
    with pytest.raises(WeightsError, match=named):
        merge_adapters(adapters, llama / "base", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_adapters_of_another_model_are_refused(llama, tmp_path) -> None:
    other = tmp_path / "merged"
    merge_adapters(llama / "peft", llama / "base", other)
    with pytest.raises(WeightsError, match="trained on another model than"):
        merge_adapters(llama / "peft", other, tmp_path / "twice")
    # Those of others don't say; then only names and shapes can tell.
    strangers = edited(llama, tmp_path / "peft")
    (strangers / MADE_FOR).unlink()
    merge_adapters(strangers, other, tmp_path / "twice")


def test_base_and_dtype_are_for_what_they_are_for(llama, tmp_path, capsys) -> None:
    command = ["import-weights", str(llama / "source"), str(tmp_path / "new")]
    assert cli.main([*command, "--base", str(llama / "base")]) == 1
    assert "--base is only for adapters" in capsys.readouterr().err
    command = ["import-weights", str(llama / "peft"), str(tmp_path / "new")]
    assert cli.main([*command, "--base", str(llama / "base"), "--dtype", "bfloat16"]) == 1
    assert "dtype of their base" in capsys.readouterr().err


@pytest.fixture(scope="module")
def judge(tmp_path_factory) -> pathlib.Path:
    """The same of a reward model."""
    folder = tmp_path_factory.mktemp("judge")
    import_weights(checkpoint("llama3", folder / "source"), folder / "base", dtype="float32")
    save_run(folder / "run", folder / "base", reward_model=True)
    export_adapters(folder / "run", folder / "peft", dtype="bfloat16")
    return folder


def test_a_reward_model_keeps_both_heads(judge: pathlib.Path, tmp_path: pathlib.Path) -> None:
    merge_adapters(judge / "peft", judge / "base", tmp_path / "merged")
    merged, run = load_reward_model(tmp_path / "merged"), load_reward_model(judge / "run")
    # Heads are never rounded, adapters are.
    jax.tree.map(np.testing.assert_array_equal, merged.params[HEADS], run.params[HEADS])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02, atol=0.15),
        merged.params[TRAINED],
        run.params[TRAINED],
    )
    with pytest.raises(ValueError, match="heads"):
        load_model(tmp_path / "merged")


def test_a_reward_model_is_a_classifier_with_one_label(judge: pathlib.Path) -> None:
    config = json.loads((judge / "peft" / CONFIG).read_text())
    assert (config["task_type"], config["modules_to_save"]) == ("SEQ_CLS", ["score"])
    score = safetensors.numpy.load_file(judge / "peft" / TENSORS)["base_model.model.score.weight"]
    reward = load_reward_model(judge / "run").params[HEADS]["reward"]["kernel"]
    np.testing.assert_array_equal(score, np.asarray(reward)[None])


def test_half_a_reward_model_is_refused(judge, llama, tmp_path) -> None:
    def refused(folder: pathlib.Path, message: str) -> None:
        with pytest.raises(WeightsError, match=message):
            merge_adapters(folder, judge / "base", tmp_path / "merged")
        assert not (tmp_path / "merged").exists()

    without = edited(judge, tmp_path / "without")
    (without / SECOND_HEAD).unlink()
    refused(without, "supported_and_plausible.safetensors: is missing")

    alone = edited(judge, tmp_path / "alone")
    shutil.copy(llama / "peft" / TENSORS, alone / TENSORS)
    refused(alone, "lacks 'base_model.model.score.weight', a reward model's score")
    (alone / SECOND_HEAD).unlink()
    refused(alone, "lacks 'base_model.model.score.weight', a reward model's score")

    for name, values in (
        ("kernel", np.zeros(3, np.float32)),
        ("bias", np.full(1, np.nan, np.float32)),
        ("bias", np.zeros(1, np.int64)),
        ("kernel", None),
    ):
        wrong = edited(judge, tmp_path / "wrong")
        second = safetensors.numpy.load_file(wrong / SECOND_HEAD)
        second[name] = values
        kept = {name: values for name, values in second.items() if values is not None}
        safetensors.numpy.save_file(kept, wrong / SECOND_HEAD)
        refused(wrong, f"{SECOND_HEAD}: '{name}' must be .* finite numbers")
        shutil.rmtree(wrong)

    refused(edited(judge, tmp_path / "more", modules_to_save=["embed_tokens"]), "modules_to_save")
    refused(edited(judge, tmp_path / "text", modules_to_save="score"), "modules_to_save")
