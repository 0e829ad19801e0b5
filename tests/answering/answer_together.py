"""One of two processes with parts of a model on two devices each: its answer, into a file."""

import dataclasses
import json
import pathlib
import sys

import jax


def main(model: str, rewards: str, output: str, process: int, port: int) -> None:
    """Answers a question.

    Args:
      model, rewards: folders.
      output: where the samples and their scores go.
      process: which of the two this is.
      port: of the first.
    """
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    from gophercite.answering.loading import inference_partitioner, load_answerer
    from tests.answering import test_loading as tiny

    try:
        inference_partitioner(3)
    except ValueError as error:
        refused = str(error)
    partitioner = inference_partitioner(model_parallel=2, data_parallel=2)
    # The model axis extends over both processes.
    assert partitioner is not None
    mesh = jax.sharding.Mesh(
        partitioner.mesh.devices.T.reshape(2, 1, 2), partitioner.mesh.axis_names,
        axis_types=partitioner.mesh.axis_types,
    )  # fmt: skip
    partitioner = dataclasses.replace(partitioner, mesh=mesh)
    answerer = load_answerer(model, tiny.SETTINGS, reward_model=rewards, partitioner=partitioner)
    leaves = jax.tree.leaves(answerer._model.params)
    assert not all(leaf.is_fully_addressable for leaf in leaves)
    answers = [
        answerer.answer("When did the mill burn?", tiny.FOUND, seed=3, keep_samples=True)
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    found = {
        "refused": refused,
        "text": answers[0].text,
        "samples": [[each.text, each.score, each.likelihood] for each in answers[0].samples],
    }
    pathlib.Path(output).write_text(json.dumps(found))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
