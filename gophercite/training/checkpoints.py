"""Asynchronous checkpoints: saving, retention, and restoring.

A checkpoint holds the complete `TrainState` and the loop's progress, with a digest of each array.
Layers are stored as one merged stack, so that a run may be resumed with another number of frozen
layers, and arrays are restored directly to their shards, on any mesh. For a run with adapters, a
checkpoint holds only the trained parts, and digests of the models that the run started from, which
must not change.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils

from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_errors import (
    CheckpointError,
    DamagedCheckpointError,
    UnreadableCheckpointError,
    share_damage,
)
from gophercite.model_folders.checkpoint_files import (
    Base,
    Metadata,
    StoredArray,
    checkpoints_folder,
    name_leaves,
    read_arrays,
    read_metadata,
    saved_steps,
    write_evaluation,
)
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.model_folders.digests import digests
from gophercite.model_folders.event_loops import waiting_event_loops
from gophercite.models.parameters import Params, frozen_layers, merge_layers, own_parts
from gophercite.storage import StorageError, files_in, is_remote, naming_storage
from gophercite.storage.checkpoint_steps import COMMITTED
from gophercite.storage.paths import trouble_of
from gophercite.storage.whole_folders import move_objects
from gophercite.training.retention import Keep
from gophercite.training.stacks import assemble, state_tree, stored_shardings

_DAMAGED = "damaged_checkpoints"
_SAVING = "saving.json"  # in a bucket: steps whose saves have begun and may be incomplete
_TRIES = 3  # attempts at a run's last save; each takes as long as the bucket client's timeout

Fresh = Callable[[Params, jax.Array], TrainState]


class NonFiniteStateError(RuntimeError):
    """The state holds NaN or infinity, so it was not saved."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a run resumes from.

    Attributes:
      state: the state on the devices, with the run's shardings.
      progress: the loop's progress that was saved with it.
      passed_over: one line for each newer checkpoint that could not be used, newest first.
    """

    state: TrainState
    progress: Mapping[str, Any]
    passed_over: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run. All its processes must create one and make the same calls."""

    def __init__(
        self,
        folder: epath.PathLike,
        *,
        keep_newest: int = 2,
        keep_best: int = 1,
        base: Base | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Opens a run's checkpoints; on a disk, deletes the remains of an interrupted save.

        Args:
          folder: the run's folder; checkpoints are in `checkpoints/STEP/`.
          keep_newest: number of newest checkpoints to keep; 2 or more leave one to fall back on.
          keep_best: number of checkpoints with the best scores to keep.
          base: for a run with adapters, the models they are trained on; otherwise None.
          say: shows a line to the user.
        """
        if keep_newest < 1 or keep_best < 0:
            raise ValueError(
                f"keep_newest={keep_newest}, keep_best={keep_best}: must be at least 1 and at "
                "least 0"
            )
        self._folder = epath.Path(folder)
        self._keep = keep_newest, keep_best
        self._base = base
        self._say = say or (lambda line: None)
        self._scores: dict[int, Score] = {}
        self._saving: int | None = None  # the step whose save may be in progress
        self._loops = contextlib.ExitStack()
        self._loops.enter_context(waiting_event_loops())
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        newest, best = self._keep
        root = checkpoints_folder(self._folder)
        with naming_storage(root):
            return ocp.CheckpointManager(
                root,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=Keep(newest, best, self._scores),
                    # In a bucket, a folder without a marker may be a user's copy, in progress or
                    # made without the marker: see `_make_room`.
                    cleanup_tmp_directories=not is_remote(self._folder),
                ),
                item_names=("state", "metadata"),
            )

    def save(
        self,
        state: TrainState,
        progress: Mapping[str, Any],
        score: Score | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Starts saving a state; returns when the arrays are copied, so that they may be donated.

        If a bucket refused the previous save, which is noticed only now, a line says so and the run
        continues: this save replaces it.

        Args:
          state: the state after an update. To a step that is already saved without a score, only
            the score and the progress are added: a run that is told to stop saves before it
            evaluates.
          progress: JSON to store with it.
          score: the state's score; None if it was not evaluated.
          last: whether this is the run's last save. Then this waits for it, and retries if a bucket
            refuses it.

        Raises:
          NonFiniteStateError: the state holds NaN or infinity. Nothing is saved, so that training
            can resume from the newest checkpoint.
          StorageError: the bucket can't be used: the last save was refused several times, or a save
            was refused in a run of several processes, which can't know whether the others' parts
            are saved.
          OSError: the previous save failed because of the disk, or this one as the last.
        """
        tries = _TRIES if last else 1
        for left in reversed(range(tries)):
            try:
                self._settle()
                self._save(state, progress, score)
                if last:
                    self._settle(give_up=not left)
            except StorageError:
                if not left or jax.process_count() > 1:
                    raise
                continue
            if not last or self._is_saved(int(state.step)):
                return

    def _is_saved(self, step: int) -> bool:
        return step in self._manager.all_steps()

    def _settle(self, *, give_up: bool = False) -> None:
        """Waits for the previous save; one that a bucket refused is reported and dropped.

        Raises:
          StorageError: the save was refused, and must not be dropped.
          OSError: the save failed because of the disk.
        """
        try:
            with self._naming_disk():
                self._manager.wait_until_finished()
        except Exception as error:
            trouble = trouble_of(self._folder, error)
            if trouble is None:
                raise
            # Orbax counts the step as saved and refuses later ones until it is reopened.
            self._scores.pop(self._saving if self._saving is not None else -1, None)
            self._manager = self._open()
            if give_up or jax.process_count() > 1:
                raise trouble from error
            self._say(
                f"checkpoint {self._saving} was not saved; the run goes on and will save the "
                f"next one: {trouble}"
            )
        self._saving = None

    @contextlib.contextmanager
    def _naming_disk(self) -> Iterator[None]:
        """Turns what a full or broken disk makes Orbax raise into errors for users."""
        try:
            yield
        except Exception as error:
            of_tensorstore = re.search(r"\bos_error_code='(\d+)'", str(error))
            number = int(of_tensorstore[1]) if of_tensorstore else getattr(error, "errno", None)
            if number is None or self._saving is None or is_remote(self._folder):
                raise
            kind = type(OSError(number, ""))  # PermissionError and others that stay
            raise kind(
                f"checkpoint {self._saving} can't be saved in {self._folder}: {os.strerror(number)}"
            ) from error

    def _save(self, state: TrainState, progress: Mapping[str, Any], score: Score | None) -> None:
        step = int(state.step)
        if self._is_saved(step):
            if score is not None and step not in self._scores:
                if jax.process_index() == 0:
                    write_evaluation(self._folder, step, progress, score)
                self._scores[step] = score
            return
        arrays = name_leaves(state_tree(state))
        found = digests(arrays)
        poisoned = [name for name, digest in found.items() if digest.non_finite]
        if poisoned:
            raise NonFiniteStateError(
                f"step {step}: {len(poisoned)} of {len(found)} arrays hold NaN or infinity (the "
                f"first is {poisoned[0]}). It was not saved; the newest checkpoint is "
                f"{self._manager.latest_step()}"
            )
        metadata = Metadata(
            step=step,
            frozen_layers=frozen_layers(state.params),
            arrays={name: StoredArray.of(arrays[name], found[name]) for name in arrays},
            progress=progress,
            score=score,
            base=self._base,
        )
        self._saving = step
        with naming_storage(checkpoints_folder(self._folder) / str(step)), self._naming_disk():
            self._make_room(step)
            if score is not None:
                self._scores[step] = score
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(arrays),
                    metadata=ocp.args.JsonSave(metadata.to_json()),
                ),
                force=True,
            )

    def _make_room(self, step: int) -> None:
        """In a bucket, moves away anything at a checkpoint's place that isn't from this run.

        Orbax deletes a folder without a marker when it saves there. That is right for the remains
        of this run's own interrupted save, but the folder may also be a copy made by a user.
        """
        if not is_remote(self._folder):
            return
        if jax.process_index() == 0:
            note = self._folder / _SAVING
            place = checkpoints_folder(self._folder) / str(step)
            begun = _steps_in(note) - set(self._manager.all_steps())
            if step not in begun and files_in(place) and not (place / COMMITTED).exists():
                aside = _free_place(self._folder / "unfinished_checkpoints", step)
                move_objects(place, aside, COMMITTED)
                self._say(
                    f"{place} has no {COMMITTED}, so it is not a whole checkpoint: moved to {aside}"
                )
            note.write_text(json.dumps({"steps": sorted(begun | {step})}) + "\n")
        multihost_utils.sync_global_devices(f"room for checkpoint {step}")

    def restore(
        self, target: TrainState, fresh: Fresh, first: Callable[[], Params]
    ) -> Restored | None:
        """Restores the newest intact checkpoint.

        A checkpoint with damaged files is moved to `damaged_checkpoints/STEP`, and the one before
        it is used.

        Args:
          target: shapes, dtypes and shardings of the state (`jax.ShapeDtypeStruct`). Its number of
            frozen layers and its frozen parts may differ from the saved run's: the optimiser then
            starts fresh on newly trained parameters and drops the state of newly frozen ones.
          fresh: creates a state from parameters and a key, for the arrays that start fresh.
          first: creates the run's initial parameters, for a run with adapters, whose checkpoints
            don't hold the base model's.

        Returns:
          The state and its progress; None if the folder holds no checkpoint.

        Raises:
          CheckpointError: the checkpoint is of another model or optimiser, or of adapters to
            another model, or may not be read, or no checkpoint is intact.
        """
        passed_over: list[str] = []
        for step in reversed(saved_steps(self._folder)):
            try:
                metadata = self._read_metadata(step)
                self._refuse_other_base(metadata)
                self._refuse_other_model(metadata, target)
                arrays = read_arrays(self._folder, metadata, stored_shardings(metadata, target))
            except DamagedCheckpointError as error:
                aside = self._set_aside(step)
                passed_over.append(f"checkpoint {step} is damaged, moved to {aside}: {error}")
                continue
            for earlier in saved_steps(self._folder):
                self._note_score(earlier)
            state = assemble(metadata, arrays, target, fresh, first)
            return Restored(state, metadata.progress, tuple(passed_over))
        aside = self._folder / _DAMAGED
        if damaged := files_in(aside):
            found = "; ".join(passed_over) or f"{aside} holds {', '.join(d.name for d in damaged)}"
            raise CheckpointError(
                f"{self._folder}: no checkpoint is usable: {found}. Put an intact copy into "
                f"{checkpoints_folder(self._folder)}, or delete {aside} to begin anew"
            )
        return None

    def _read_metadata(self, step: int) -> Metadata:
        """A checkpoint's metadata; raises the same error in all processes or in none."""
        metadata: Metadata | None = None
        damage: CheckpointError | None = None
        try:
            metadata = read_metadata(self._folder, step)
        except (DamagedCheckpointError, UnreadableCheckpointError) as error:
            damage = error
        share_damage(damage, checkpoints_folder(self._folder) / str(step) / "metadata", step)
        assert metadata is not None
        return metadata

    def wait(self) -> None:
        """Waits until saves have completed; if a bucket refuses one, a line says so.

        Raises:
          OSError: a save failed because of the disk.
        """
        self._settle()

    def close(self) -> None:
        """Waits and releases the threads; raises OSError if the disk refused a save."""
        with self._loops, self._naming_disk():
            self._manager.close()

    def _refuse_other_base(self, metadata: Metadata) -> None:
        """Raises CheckpointError if the checkpoint's adapters don't belong to this run's models."""
        here, there = self._base, metadata.base
        if here == there:
            return
        if here is None or there is None:
            has = ("only adapters", "all parameters")
            problem = "holds {}, but this run trains {}".format(*has if here is None else has[::-1])
        elif here.lora != there.lora:
            problem = f"has adapters with {dict(there.lora)}, but this run's have {dict(here.lora)}"
        else:
            was, found = there.digests, here.digests
            name = next(n for n in sorted({**was, **found}) if was.get(n) != found.get(n))
            problem = (
                f"was trained from another {name} than this run starts from: the hash of its "
                f"parameters is {was.get(name, 'nothing')[:12]} in the checkpoint and "
                f"{found.get(name, 'nothing')[:12]} here"
            )
        raise CheckpointError(
            f"{self._folder}: checkpoint {metadata.step} {problem}. Set MODEL_DIR to a new "
            "folder, or use what the run was started with"
        )

    def _refuse_other_model(self, metadata: Metadata, target: TrainState) -> None:
        """Raises CheckpointError if parameters of the run have no counterpart in the checkpoint."""
        merged = jax.eval_shape(merge_layers, own_parts(target.params))
        for name, wanted in name_leaves({"params": merged}).items():
            stored = metadata.arrays.get(name)
            here = (tuple(wanted.shape), str(wanted.dtype))
            there = (stored.shape, stored.dtype) if stored else None
            if here != there:
                described = f"{there[1]}{list(there[0])}" if there else "absent"
                raise CheckpointError(
                    f"{self._folder}: checkpoint {metadata.step} belongs to another model: {name} "
                    f"is {described} in the checkpoint, but {here[1]}{list(here[0])} in this run. "
                    "Set MODEL_DIR to a new folder, or configure the model as before"
                )

    def _set_aside(self, step: int) -> epath.Path:
        """Moves a damaged checkpoint out of the way, so that its step can be saved again."""
        aside = self._folder / _DAMAGED
        target = aside / str(step)
        if jax.process_index() == 0:
            place = checkpoints_folder(self._folder) / str(step)
            target = _free_place(aside, step)
            if is_remote(place):
                move_objects(place, target, COMMITTED)
            else:
                aside.mkdir(parents=True, exist_ok=True)
                place.rename(target)
        multihost_utils.sync_global_devices(f"checkpoint {step} set aside")
        self._manager.reload()
        return target

    def _note_score(self, step: int) -> None:
        try:
            score = read_metadata(self._folder, step).score
        except (DamagedCheckpointError, UnreadableCheckpointError):
            return
        if score is not None:
            self._scores[step] = score


def _free_place(folder: epath.Path, step: int) -> epath.Path:
    """An unused name: "STEP", or "STEP.2" and so on."""
    place, number = folder / str(step), 1
    while place.exists():
        number += 1
        place = folder / f"{step}.{number}"
    return place


def _steps_in(note: epath.Path) -> set[int]:
    """The steps whose saves a run has begun but not seen complete; empty if there is no note."""
    try:
        return {int(step) for step in json.loads(note.read_text())["steps"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return set()
