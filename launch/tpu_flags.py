"""The flags of launch/tpu.py; they are checked before any command is run."""

import argparse
import re
import sys
from collections.abc import Sequence

import accelerators

HELP = """Creates TPU machines, trains on them and removes them again, using gcloud.

examples:
  # eight spot TPU v5e slices of 256 chips, ready to use
  python launch/tpu.py create run1 --zone=us-west4-a --accelerator=v5e-256 --slices=8 --spot

  # the same with a training; after a preemption it requests a new machine and resumes
  python launch/tpu.py run run1 --zone=us-west4-a --accelerator=v5e-256 --slices=8 --spot \\
    --delete-when-done -- --gin_file=gin_configs/sft_gopher_280b.gin \\
    --gin.MODEL_DIR=gs://bucket/runs/sft

  python launch/tpu.py status run1 --zone=us-west4-a
  python launch/tpu.py logs run1 --zone=us-west4-a --lines=200
  python launch/tpu.py stop run1 --zone=us-west4-a     # the training saves and ends
  python launch/tpu.py delete run1 --zone=us-west4-a   # waits until nothing costs money

Without --accelerator, `run` uses an existing machine of this name, a queued resource or a TPU VM.
Started again, a command continues from the present state of the machine and the training; it
creates no second one. Ctrl-C leaves both as they are and prints what still costs money.
docs/pods.md explains everything from the start.

exit status: 0 done; 1 refused, failed or given up, with a line that says why and what still costs
money; 2 wrong usage; 130 Ctrl-C.
"""

_NAME = r"[a-z](?:[a-z0-9-]{0,48}[a-z0-9])?"  # Google allows 63; slices and hosts add to it
_PATTERNS = {
    "name": (_NAME, "lower-case letters, digits and hyphens, starting with a letter, at most 50"),
    "zone": (r"[a-z]+-[a-z]+[0-9]{1,2}-[a-z]", "a zone, such as us-central2-b"),
    "project": (
        r"(?:[a-z0-9.-]{1,60}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
        "a project's id, such as my-project-12345",
    ),
    "runtime": (r"[a-z0-9][a-z0-9.-]{0,60}", "a runtime version, such as v2-alpha-tpuv6e"),
    "service_account": (
        r"[a-z0-9][a-z0-9-]{0,61}@[a-z0-9.-]{3,100}\.com",
        "an account, such as NAME@PROJECT.iam.gserviceaccount.com",
    ),
    "network": (r"[a-z0-9][a-z0-9/._:-]{0,200}", "a network's name"),
    "subnetwork": (r"[a-z0-9][a-z0-9/._:-]{0,200}", "a subnetwork's name"),
    "valid_until": (r"[1-9][0-9]{0,5}[smhd]", "a time, such as 30m, 12h or 2d"),
    "ssh_flag": (r"--[a-z][a-z0-9-]*(?:=[^\s-][^\n]*)?", "a flag of gcloud, such as --internal-ip"),
    "commit": (r"[A-Za-z0-9][A-Za-z0-9._/^~@{}-]{0,200}", "a commit, tag or branch"),
}
TIERS = ("spot", "best_effort", "reserved")
_OF_NEW_MACHINES = (
    *("runtime", "slices", *TIERS, "service_account", "network", "subnetwork", "internal_ips"),
    "valid_until",
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the flags; anything that Google would reject is wrong usage."""
    parser = argparse.ArgumentParser(
        prog="tpu.py",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    summaries = {
        "create": "request a machine and wait until it is ready",
        "run": "train on a machine, and look after it until the training is done",
        "status": "show the state of the machine and the training",
        "logs": "print the end of every worker's log",
        "stop": "make the training save and end; the machine stays",
        "delete": "remove the machine, and wait until it is gone",
    }
    by_name = {}
    for name, summary in summaries.items():
        usage = f"tpu.py {name} NAME --zone=ZONE [options]"
        command = by_name[name] = commands.add_parser(
            name,
            help=summary,
            description=summary,
            usage=usage + (" -- FLAGS OF TRAIN.PY" if name == "run" else ""),
            allow_abbrev=False,
        )
        _add_place(command)
    for name in ("create", "run"):
        _add_machine(by_name[name])
    _add_training(by_name["run"])
    by_name["logs"].add_argument(
        "--lines",
        type=int,
        default=50,
        metavar="N",
        help="number of lines per worker (default: 50)",
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:end])
    flags.training = given[end + 1 :]
    command = by_name[flags.command]
    if flags.training and flags.command != "run":
        command.error("only `run` accepts flags of a training after --")
    _check(command, flags)
    return flags


def _add_place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", help="name of the machine: of the queued resource and its nodes")
    add("--zone", required=True, help="Google's zone, such as us-central2-b")
    add("--project", help="Google Cloud project (default: the one that gcloud is set to)")
    add(
        "--ssh-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="flag for gcloud's ssh and scp, such as --ssh-flag=--internal-ip; may be repeated",
    )
    add("--dry-run", action="store_true", help="print the commands without running them")
    add(
        "--poll",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="seconds between two looks at the machine (default: 30)",
    )
    add(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds after which a gcloud command without an answer is given up and tried "
        "again; 3 times as long for commands to workers, 15 times for copying (default: 60)",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--accelerator", metavar="TYPE", help="v3-8, v4-8, v5e-16, v5p-8, v6e-8 …")
    add(
        "--runtime",
        metavar="VERSION",
        help="runtime version (default: the one for JAX on this accelerator)",
    )
    add(
        "--slices",
        type=int,
        default=1,
        metavar="N",
        help="number of slices, connected by the network (default: 1)",
    )
    tiers = parser.add_mutually_exclusive_group()
    tiers.add_argument(
        "--spot", action="store_true", help="use spot capacity: cheaper, but may be preempted"
    )
    tiers.add_argument("--best-effort", action="store_true", help="the older form of --spot")
    tiers.add_argument("--reserved", action="store_true", help="use the project's reservation")
    add("--service-account", metavar="EMAIL", help="service account of the workers")
    add("--network")
    add("--subnetwork")
    add("--internal-ips", action="store_true", help="give the workers no external address")
    add(
        "--valid-until",
        metavar="TIME",
        help="withdraw the request if it is not granted within this time, such as 12h",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--commit", default="HEAD", help="commit of the code that is sent (default: HEAD)")
    add("--code", metavar="FOLDER", help="checkout of the code that is sent (default: this one)")
    add(
        "--delete-when-done",
        action="store_true",
        help="remove the machine when the training is done",
    )


def _check(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Refuses what Google would reject, or a shell could misinterpret."""
    for field, (pattern, wanted) in _PATTERNS.items():
        given = getattr(flags, field, None)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not re.fullmatch(pattern, value):
                shown = "NAME" if field == "name" else f"--{field.replace('_', '-')}"
                parser.error(f"{shown} is {value!r}: must be {wanted}")
    if not 0 <= flags.poll <= 3600:
        parser.error(f"--poll is {flags.poll}: must be from 0 to 3600 seconds")
    if not 0 < flags.timeout <= 3600:
        parser.error(f"--timeout is {flags.timeout}: must be above 0 and at most 3600")
    if getattr(flags, "lines", 1) < 1:
        parser.error(f"--lines is {flags.lines}: must be at least 1")
    if flags.command not in ("create", "run"):
        return
    if not 1 <= flags.slices <= 256:
        parser.error(f"--slices is {flags.slices}: must be from 1 to 256")
    if flags.accelerator is None and flags.command == "create":
        parser.error("the following arguments are required: --accelerator")
    if flags.accelerator is None:
        for field in _OF_NEW_MACHINES:
            if getattr(flags, field) != parser.get_default(field):
                parser.error(
                    f"--{field.replace('_', '-')} is for a machine that is created, and without "
                    "--accelerator none is"
                )
    else:
        try:
            slice_ = accelerators.parse(flags.accelerator)
        except accelerators.AcceleratorError as error:
            parser.error(f"--accelerator: {error}")
        flags.accelerator = slice_.name
        flags.runtime = flags.runtime or slice_.generation.runtime
    if flags.command == "run":
        check_training(parser, flags.training)


def check_training(parser: argparse.ArgumentParser, training: Sequence[str]) -> None:
    """Refuses runs that can't be trained on machines that come and go, as wrong usage.

    Args:
      parser: reports wrong usage.
      training: flags of launch/train.py.
    """
    if not any(each.startswith("--gin_file=") for each in training):
        parser.error("the flags of launch/train.py are missing; they go after --")
    for each in training:
        if not each.startswith(("--gin_file=", "--gin.", "--gin_search_paths=", "--join_timeout=")):
            parser.error(
                f"{each!r} can't go to the workers: only settings such as --gin.NAME=VALUE can"
            )
    folders = [each for each in training if each.startswith("--gin.MODEL_DIR=")]
    if not folders or not re.match("gs://[^/]", folders[-1].partition("=")[2].strip("'\"")):
        parser.error(
            "--gin.MODEL_DIR must be in a bucket (gs://…): the workers' disks are deleted with "
            "the machine"
        )


def creation(flags: argparse.Namespace) -> list[str]:
    """The gcloud flags that request the machine."""
    flags_given = [f"--accelerator-type={flags.accelerator}", f"--runtime-version={flags.runtime}"]
    if flags.slices == 1:
        flags_given.append(f"--node-id={flags.name}")
    else:
        flags_given += [f"--node-count={flags.slices}", f"--node-prefix={flags.name}"]
    flags_given += [f"--{tier.replace('_', '-')}" for tier in TIERS if getattr(flags, tier)]
    for field, flag in (
        ("service_account", "service-account"),
        ("network", "network"),
        ("subnetwork", "subnetwork"),
        ("valid_until", "valid-until-duration"),
    ):
        if value := getattr(flags, field):
            flags_given.append(f"--{flag}={value}")
    return [*flags_given, "--internal-ips"] if flags.internal_ips else flags_given
