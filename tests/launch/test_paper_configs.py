"""The gin files of the paper's own runs, on files and models small enough to build here."""

import io
import pathlib

import configuration
import dry_run
import gin
import gin_files
import pytest
import seqio
from tiny_runs import TINY

from data_pipelines.sample_world.convert import to_comparison
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.training.early_stopping import EarlyStopping
from tests.long_forms import LONG

pytestmark = pytest.mark.usefixtures("two_devices")

# The architecture of these files is Gopher's; here it is a tiny one.
SMALL = TINY | {
    "Transformer.config": "@TransformerConfig()",
    "TransformerConfig.vocab_size": "2048",
    "partitioner.model": "1",
    "VOCABULARY": repr(str(VOCABULARY_FOLDER)),
    "INITIAL_CHECKPOINT": "None",
    "MODEL_DIR": "x",
}
# How many comparisons the paper has of each source (appendix E).
COMPARISONS = {"nq": 17_954, "eli5": 5_338, "squad": 277, "trivia_qa": 3_856, "fever": 5_817}


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> dict[str, str]:
    """For each source a folder of comparisons, of a world of its own."""
    found = {}
    for place, name in enumerate(COMPARISONS):
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "validation"):
            world = World(seed=place, split=split)
            made = [to_comparison(world.comparison(index)) for index in range(4 + place)]
            records.write(folder / f"comparisons_{split}.jsonl", made)
        found[name.upper()] = repr(str(folder))
    return found


@pytest.mark.parametrize("size", ["1_4b", pytest.param("7b", marks=LONG)])
def test_the_reward_models_learn_from_the_paper_s_mixture(
    size: str, folders: dict[str, str]
) -> None:
    """All five sources at the paper's amounts; ELI5's set selects, the mixture reports."""
    small = SMALL | folders | {"RewardLearner.microbatches": "1", "LENGTH": "96"}
    gin_files.load([f"gin_configs/rm_gopher_{size}.gin"], small)
    run = configuration.build()
    assert run.input.trained_length is None
    mixture = seqio.MixtureRegistry.get(run.input.mixture_or_task_name)
    rates = {task.name: mixture.get_rate(task) for task in mixture.tasks}
    assert rates == COMPARISONS

    pairs = {
        name: sum(int((batch["preferred_weights"] > 0).sum()) for batch in of_set.one_pass())
        for name, of_set in run.evaluations.items()
    }
    each = {name: 4 + place for place, name in enumerate(COMPARISONS)}
    assert pairs == {**each, "mixture": sum(each.values())}
    stopping = run.settings.early_stopping
    assert stopping is not None
    assert stopping.metrics == (run.settings.best_metric,) == ("eval/eli5/preference_accuracy",)

    out = io.StringIO()
    dry_run.show(run, out)
    assert "--- probability that the second is preferred: " in out.getvalue()


def test_reinforcement_learning_ends_at_its_budget_of_divergence() -> None:
    """A policy further than that from its teacher ends the run, and is never the best one."""
    paths = ["VOCABULARY", "INITIAL_CHECKPOINT", "REWARD_MODEL", "MODEL_DIR"]
    paths += ["NQ_FILE", "ELI5_FILE", "VALIDATION_FILE"]
    bindings = dict.fromkeys(paths, "x") | {"KL_BUDGET": "7.5"}
    gin_files.load(["gin_configs/a2c_gopher_280b.gin"], bindings)
    stopping = gin.get_configurable(EarlyStopping)()
    assert stopping.limits == {"eval/validation/kl": 7.5}
    assert stopping.beyond({"eval/validation/kl": 7.4}) is None
    assert "beyond its limit of 7.5" in stopping.beyond({"eval/validation/kl": 7.6})
