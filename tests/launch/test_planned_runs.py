"""Steps that are planned from shapes alone: the batches and operations are those of real runs."""

import importlib.metadata
import pathlib

import configuration  # noqa: F401 -- makes the library known to gin
import gin
import gin_files
import jax
import plan_cache
import planned_runs
import planned_tables
import pytest
from tiny_runs import TINY

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.planning.chips import topology
from gophercite.planning.needed_flops import forward_flops, sampling_flops
from gophercite.planning.plan import Plan, Step, plan_step
from gophercite.quoting.quote_settings import QuoteSettings

NOWHERE = {"INITIAL_CHECKPOINT": "gs://bucket/sft", "REWARD_MODEL": "gs://bucket/rm"}
SMALL = {
    **TINY, **NOWHERE, "TransformerConfig.d_model": "32", "LENGTH": "96", "BATCH_SIZE": "4",
    "A2CLearner.microbatches": "1", "A2CLearner.value_width": "8",
}  # fmt: skip


def load(file: str, **bindings: str) -> None:
    gin_files.load([f"gin_configs/{file}.gin"], bindings, unset=[])


def test_a_plan_s_name_changes_with_all_that_the_plan_depends_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, model = tmp_path / "judge.gin", tmp_path / "model"
    model.mkdir()
    (tmp_path / "run.gin").write_text('include "shared.gin"\n')
    (tmp_path / "shared.gin").write_text('include "sft_imported.gin"\n')
    judge.write_text('include "rm_gopher_7b.gin"\n')
    (model / "model.json").write_text("{}")

    def name(*commands: str, **bindings: str) -> str | None:
        given = {"INITIAL_CHECKPOINT": str(model), **bindings}
        paths = [str(tmp_path)]
        (found,) = plan_cache.names([commands], ["run.gin"], [given], paths, str(judge))
        return found

    seen = {name()}
    assert seen == {name()} != {None}
    for path in (tmp_path / "run.gin", tmp_path / "shared.gin", judge, model / "model.json"):
        path.write_text(path.read_text() + "\n")
        seen.add(name())
    seen.add(name("--topology=v5e:2x2"))
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16")
    seen.add(name())
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "0")
    seen.add(name())
    assert len(seen) == 8
    assert name(NO_SUCH="3") is None  # the plan's own process will say so
    (tmp_path / "shared.gin").write_text('import math\ninclude "sft_imported.gin"\n')
    assert name() is None  # a module of the user's own


@pytest.mark.parametrize(("start", "read"), [(0, 12), (5, 12), (5, 3)])
def test_a_forward_pass_is_its_parts(start: int, read: int) -> None:
    config = TransformerConfig(
        vocab_size=64, d_model=16, num_layers=2, num_heads=2, head_dim=8, d_ff=32, position="rope",
        tied_embeddings=False,
    )  # fmt: skip
    rows, length = 3, 12
    whole = forward_flops(config, rows, length, start=start, read=read)
    heads, layer = 16, 4 * 16 * 16 + 2 * 16 * 32
    pairs = sum(start + place + 1 for place in range(length))
    expected = 2 * rows * (2 * layer * length + 64 * 16 * read) + 2 * 2 * 2 * rows * pairs * heads
    assert whole == pytest.approx(expected)
    split = forward_flops(config, rows, 7, start=start, read=0)
    split += forward_flops(config, rows, length - 7, start=start + 7, read=min(read, 5))
    assert whole == pytest.approx(split + 2 * rows * 64 * 16 * max(read - 5, 0))


def test_a_batch_of_prompts_has_the_shapes_of_a_real_one() -> None:
    load("a2c_sample_world", **SMALL)
    gin.bind_parameter("RolloutInput.judge_vocabulary", None)
    source = gin.query_parameter("Run.input").scoped_configurable_fn()
    real = next(source.batches())
    names = "batch_size", "prompt_length", "question_length", "max_tokens"
    prompts, *sizes = (getattr(source, name) for name in names)
    planned = planned_runs._prompts(
        Partitioner(make_mesh(data=4)), QuoteSettings(), prompts, *sizes, source.vocabulary.size
    )
    assert planned.keys() == real.keys()
    tables, of_plan = real.pop("quotes"), planned.pop("quotes")
    for name, part in real.items():
        assert (planned[name].shape, planned[name].dtype) == (part.shape, part.dtype), name
    leaves, structure = jax.tree.flatten(tables)
    shapes, of_shapes = jax.tree.flatten(of_plan)
    assert of_shapes == structure
    for part, shape in zip(leaves, shapes, strict=True):  # their sizes are estimates
        assert (len(shape.shape), shape.dtype) == (part.ndim, part.dtype)


def test_reinforcement_learning_does_what_it_must() -> None:
    load("a2c_sample_world", **SMALL, **{"partitioner.model": "2"})
    slice_ = topology("cpu-4")
    plan = plan_step(planned_runs.planned_run(slice_).step, slice_)
    assert plan.fits
    assert plan.mesh == {"data": 1, "fsdp": 2, "model": 2}
    assert plan.memory is not None
    assert plan.memory.parameters > plan.memory.optimizer > 0
    assert plan.needed_flops is not None
    assert 0.9 < plan.flops / plan.needed_flops < 1.6
    assert plan.host_operations == 0


def load_ppo(**bindings: str) -> None:
    sizes = {
        "Rollout.environments": "4", "Rollout.steps": "3", "Rollout.chunk": "8",
        "BrowsingSettings.prompt_tokens": "24", "SamplingSettings.max_tokens": "8",
        "PPOLearner.minibatches": "2", "PPOLearner.microbatches": "1", "PPOLearner.epochs": "1",
        "PPOLearner.value_width": "8", "VOCABULARY_SIZE": "512",
        "constant_schedule.learning_rate": "0.1",
        "FROZEN_FRACTION": "0.5", "PPOLearner.frozen_parts": "('embed',)",
    }  # fmt: skip
    unused = ("A2C", "LENGTH", "linear_warmup")
    tiny = {name: value for name, value in SMALL.items() if not name.startswith(unused)}
    load("ppo", **{**tiny, **sizes, "Transformer.config": "@TransformerConfig()", **bindings})
    gin.bind_parameter("TransformerConfig.vocab_size", 512)


def test_updates_of_ppo_do_what_they_must() -> None:
    load_ppo()
    slice_ = topology("cpu-4")
    plan = plan_step(planned_runs.planned_run(slice_).step, slice_)
    assert plan.fits
    assert plan.needed_flops is not None
    # Attention over a whole row, of which analysis counts the causal half.
    assert 0.8 < plan.flops / plan.needed_flops < 1.6


def test_updates_of_ppo_are_of_the_runs_own_collector_and_learner() -> None:
    """Whichever scopes set their parts."""
    sizes: list[int] = []
    for given in (
        {"Rollout.chunk": "12", "VOCABULARY_SIZE": "256", "BrowsingSettings.constrained": "True"},
        {"Run.collector": "@own/browsing_collector()", "own/Rollout.chunk": "12",
         "own/BrowsingSettings.constrained": "True",
         "Run.learner": "@own/PPOLearner()", "own/PPOLearner.vocabulary_size": "256"},
    ):  # fmt: skip
        load_ppo(**given)
        sizes.append(planned_runs.planned_run(topology("cpu-4")).step.batch)
    assert sizes[0] == sizes[1]


def sampling_step(**asked: object) -> Step:
    sampling = planned_runs.Sampling(4, 2, 64, 16, **asked)  # type: ignore[arg-type]
    return planned_runs.planned_run(topology("cpu-2"), sampling=sampling).step


def planned_sampling(**asked: object) -> Plan:
    return plan_step(sampling_step(**asked), topology("cpu-2"))


def load_sampling() -> None:
    load("models/sample_world", **{name: TINY[name] for name in TINY if "Config" in name})


@pytest.fixture(scope="module")
def held() -> Plan:
    """As the files have it: under the quote constraint."""
    load_sampling()
    return planned_sampling()


def test_sampling_does_what_it_must(held: Plan) -> None:
    assert held.fits
    assert held.needed_flops is not None
    assert 0.9 < held.flops / held.needed_flops < 1.6
    assert held.host_operations == 0
    config = planned_runs.model_of("gin_configs/models/gopher_44m.gin")
    assert config.num_layers == 8
    assert planned_runs.model_of("gin_configs/models/qwen3_1_7b.gin").parameters == 1_720_574_976
    assert sampling_flops(config, 1, 8, 2, 4) < 2 * sampling_flops(config, 1, 8, 1, 4)


def test_sampling_is_planned_as_it_is_asked_for(held: Plan) -> None:
    load_sampling()

    def batch(plan: Plan) -> int:
        assert plan.memory is not None
        return plan.memory.batch

    plain = sampling_step(constrained=False)
    tracked = planned_sampling(constrained=False, track_faults=True, slots=1)
    assert plain.batch == 4 * 64 * 4 + 4 * 4, "prompts and their lengths, no tables"
    assert batch(held) > batch(tracked) > plain.batch
    assert held.host_operations == tracked.host_operations == 0
    # Tracking has a loop of its own; and prompts that wait for a place are read one by one.
    assert tracked.unknown_loops > held.unknown_loops + 1
    gin.bind_parameter("SamplingSettings.free_log_probs", False)
    assert planned_sampling().flops != held.flops, "the logits of allowed tokens instead of all"
    gin.bind_parameter("QuoteSettings.minimum_quote", 0)
    with pytest.raises(ValueError, match="minimum_quote = 0"):
        planned_sampling()


def test_tables_of_faults_have_the_shapes_of_real_ones() -> None:
    vocabulary, quotes = bundled_vocabulary(), QuoteSettings(maximum_omissions=1)
    tracker = FaultTracker(vocabulary, quotes.minimum_quote, quotes.maximum_omissions)
    page = Document(
        "p", "A page", "Aldanor was founded in 1285. Ida Haroa leads its council. " * 80
    )
    graph = tracker.graph([page])
    real = tracker.host_tables([graph] * 2)
    planned = planned_tables.fault_tables(
        Partitioner(make_mesh(data=4)), quotes, 2, len(vocabulary.encode(page.text)), 4096
    )
    leaves, structure = jax.tree.flatten(real)
    shapes, of_shapes = jax.tree.flatten(planned)
    assert of_shapes == structure
    for part, shape in zip(leaves, shapes, strict=True):
        assert (len(shape.shape), shape.dtype) == (part.ndim, part.dtype)
    assert planned.spelled.shape == (4097,)
    assert planned.next.shape == real.next.shape
    for name, needed in (("replaced", graph.sizes.nodes), ("byte", graph.sizes.edges)):
        assert 1 <= getattr(planned, name).shape[0] / (2 * needed) < 4


def test_what_cannot_be_planned_is_named() -> None:
    load("a2c_sample_world", **SMALL, **{"QUOTES": "None"})
    with pytest.raises(ValueError, match="QUOTES = None: without models"):
        planned_runs.planned_run(topology("cpu-4"))


def test_a_plan_has_the_batch_of_the_runs_own_input() -> None:
    """Also if its scope sets it, and if a macro names the part."""
    others = ("A2C", "REWARD_MODEL")
    tiny = {name: value for name, value in SMALL.items() if not name.startswith(others)}
    slice_ = topology("cpu-4")
    load("sft_sample_world", **tiny | {"BATCH_SIZE": "8", "LENGTH": "64"})
    expected = planned_runs.planned_run(slice_).step.batch
    ways: list[dict[str, str]] = [
        {"train/Input.batch_size": "8", "train/Input.length": "64"},
        {"BATCH_SIZE": "8", "LENGTH": "64", "Run.learner": "%LEARNER", "Run.input": "%INPUT",
         "LEARNER": "@SupervisedLearner()", "INPUT": "@train/Input()"},
    ]  # fmt: skip
    for given in ways:
        load("sft_sample_world", **tiny | given)
        assert planned_runs.planned_run(slice_).step.batch == expected
    load("sft_sample_world", **tiny, **{"Run.learner": "3"})
    with pytest.raises(ValueError, match=r"^Run\.learner = 3: must be a part"):
        planned_runs.planned_run(slice_)


def test_a_plan_has_the_samples_and_rewards_of_the_runs_own_learner() -> None:
    """Whichever scope sets them: that of the part, or of the learner that it is in."""
    slice_ = topology("cpu-4")

    def needed(**given: str) -> float | None:
        load("a2c_sample_world", **SMALL, **given)
        return planned_runs.planned_run(slice_).step.needed_flops

    one, three = needed(), needed(**{"rollout_plan.samples_per_prompt": "3"})
    assert three != one
    ways: list[dict[str, str]] = [
        {"A2CLearner.plan": "@many/rollout_plan()", "many/rollout_plan.samples_per_prompt": "3",
         "rollout_plan.samples_per_prompt": "2"},
        {"Run.learner": "@many/A2CLearner()", "many/rollout_plan.samples_per_prompt": "3",
         "many/A2CLearner.plan": "%PLAN", "PLAN": "@rollout_plan()"},
    ]  # fmt: skip
    for given in ways:
        assert needed(**given) == three
    strict = {"A2CLearner.rewards": "@strict/rewards()", "strict/rewards.syntax_penalty": "-1"}
    with pytest.raises(ValueError, match=r"rewards\.syntax_penalty = -1"):
        needed(**strict)


def test_a_plan_needs_no_gradients_of_frozen_layers_and_a_reward_model_no_logits() -> None:
    def planned(file: str, fraction: str) -> tuple[float, TransformerConfig]:
        given = {name: value for name, value in SMALL.items() if not name.startswith("A2C")}
        given.pop("REWARD_MODEL")
        load(file, **given, FROZEN_FRACTION=fraction)
        run = planned_runs.planned_run(topology("cpu-4"))
        assert run.step.needed_flops is not None
        return run.step.needed_flops, gin.get_configurable("Transformer")().config

    for file, rows, read in (("sft_sample_world", 4, 96), ("rm_sample_world", 8, 0)):
        whole, config = planned(file, "0.0")
        half, _ = planned(file, "0.5")
        assert whole == 3 * forward_flops(config, rows, 96, read=read)
        layers = forward_flops(config, rows, 96, read=0)
        assert whole - half == pytest.approx(
            2 * layers * (config.num_layers // 2) / config.num_layers
        )
