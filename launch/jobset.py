"""Prints a JobSet for GKE: a training run on one or several TPU slices.

    python launch/jobset.py run1 --accelerator=v5e-256 --slices=2 --spot \\
      --image=us-docker.pkg.dev/my-project/images/gophercite:1 --service-account=trainer \\
      -- --gin_file=gin_configs/sft_gopher_280b.gin --gin.MODEL_DIR=gs://bucket/runs/sft \\
      | kubectl apply -f -

The manifest is launch/jobset.yaml. docs/pods.md describes the cluster, the image and the account.

exit status: 0 done; 1 the training's settings are wrong; 2 wrong usage.
"""

import argparse
import json
import pathlib
import re
import string
import sys
from collections.abc import Sequence

import accelerators
import gin_files
import tpu_flags
import workers_files

TEMPLATE = pathlib.Path(__file__).with_suffix(".yaml")
_NAME = r"[a-z](?:[a-z0-9-]{0,36}[a-z0-9])?"  # pods add -slice-NUMBER-NUMBER-XXXXX
_ACCOUNT = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_IMAGE = r"[a-z0-9][A-Za-z0-9_./:@-]{0,254}"
_MOST = 100_000  # slices, restarts, seconds of grace


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = parse(arguments)
    try:
        workers_files.check(
            flags.training, _held, "this repository, of which the image is made", "copy it there"
        )
    except (gin_files.ConfigurationError, OSError) as error:
        print(f"jobset: {error}", file=sys.stderr)
        return 1
    print(manifest(flags), end="")
    return 0


def _held(place: pathlib.PurePath) -> bytes | None:
    """What the image has at a path if it was made as docs/pods.md says: the working copy's."""
    path = gin_files.ROOT / place
    if path.is_dir():
        return b""
    return path.read_bytes() if path.is_file() else None


def manifest(flags: argparse.Namespace) -> str:
    """The manifest; values are written as JSON, which is valid YAML whatever they contain.

    Args:
      flags: the command's flags.
    """
    slice_: accelerators.Slice = flags.slice
    nodes = {
        "cloud.google.com/gke-tpu-accelerator": slice_.node_label,
        "cloud.google.com/gke-tpu-topology": slice_.topology,
    }
    if flags.spot:
        nodes["cloud.google.com/gke-spot"] = "true"
    command = ["python", "launch/keep_running.py", "--tries=3", "--"]
    command += ["python", "launch/train.py", "--distributed", *flags.training]
    values: dict[str, object] = {
        "NAME": flags.name,
        "RESTARTS": flags.restarts,
        "SLICES": flags.slices,
        "HOSTS": slice_.hosts,
        "CHIPS": slice_.chips_of_host,
        "GRACE": flags.grace,
        "SERVICE_ACCOUNT": flags.service_account,
        "NODES": nodes,
        "IMAGE": flags.image,
        # Kubernetes expands variables in $(…); two dollar signs become one literal one.
        "COMMAND": [word.replace("$", "$$") for word in command],
    }
    template = string.Template(TEMPLATE.read_text("utf-8"))
    return template.substitute(
        {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the flags; anything that Kubernetes would reject is wrong usage."""
    parser = argparse.ArgumentParser(
        prog="jobset.py",
        description=__doc__,
        usage="jobset.py NAME --accelerator=TYPE --image=IMAGE [options] -- FLAGS OF TRAIN.PY",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", help="name of the JobSet")
    add("--accelerator", required=True, metavar="TYPE", help="v3-8, v4-8, v5e-16, v5p-8, v6e-8 …")
    add(
        "--image",
        required=True,
        help="container image with this repository in /gophercite and its environment",
    )
    add(
        "--slices",
        type=int,
        default=1,
        metavar="N",
        help="number of slices, with a node pool each (default: 1)",
    )
    add("--spot", action="store_true", help="run on spot nodes")
    add("--service-account", default="default", metavar="NAME", help="Kubernetes' own")
    add("--restarts", type=int, default=100, metavar="N", help="of all pods (default: 100)")
    add(
        "--grace",
        type=int,
        default=600,
        metavar="SECONDS",
        help="seconds for saving, between SIGTERM and SIGKILL (default: 600)",
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:end])
    flags.training = given[end + 1 :]
    for name, pattern in (("name", _NAME), ("image", _IMAGE), ("service_account", _ACCOUNT)):
        value = getattr(flags, name)
        if not re.fullmatch(pattern, value):
            shown = "NAME" if name == "name" else f"--{name.replace('_', '-')}"
            parser.error(f"{shown} is {value!r}: Kubernetes does not accept this name")
    for name in ("slices", "restarts", "grace"):
        if not 1 <= getattr(flags, name) <= _MOST:
            parser.error(f"--{name} is {getattr(flags, name)}: must be from 1 to {_MOST}")
    try:
        flags.slice = accelerators.parse(flags.accelerator)
    except accelerators.AcceleratorError as error:
        parser.error(f"--accelerator: {error}")
    tpu_flags.check_training(parser, flags.training)
    return flags


if __name__ == "__main__":
    sys.exit(main())
