#!/usr/bin/env python3
"""A `gcloud` for tests: queued resources, nodes and workers, all in a folder (FAKE_GCLOUD).

`scenario.json` says how it goes: `states`, for each request the states that one look after the
other finds; `nodes`, states of a node for looks once it is active; `workers` of each node;
`faults`, for a command what befalls its next calls; `left_behind`, nodes that outlive their
request. `state.json` is what there is, `calls.jsonl` what was asked. Workers are folders,
`home/NODE/NUMBER`; commands for them run there.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys

# What only some commands need is imported there, and nothing that takes as long as pathlib or
# typing: hundreds of processes start with this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROOT = os.environ["FAKE_GCLOUD"]
WHERE = "projects/p/locations/z"
MESSAGES = {
    "quota": "ERROR: (gcloud.x) RESOURCE_EXHAUSTED: Quota limit 'TPUV5' has been exceeded.",
    "denied": "ERROR: (gcloud.x) PERMISSION_DENIED: tpu.nodes.create is denied on 'p'",
    "unavailable": "noise\n\x1b[31mERROR: (gcloud.x) UNAVAILABLE: The service is \x07unavailable.",
    "exists": "ERROR: (gcloud.x) ALREADY_EXISTS: Resource 'r' already exists",
}


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(1)


class opened:  # noqa: N801
    """What there is; changes are kept."""

    def __enter__(self) -> dict[str, Any]:
        self.lock = open(f"{ROOT}/lock", "a")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.state: dict[str, Any] = {"queued": {}, "nodes": {}, "requests": 0}
        if os.path.exists(f"{ROOT}/state.json"):
            with open(f"{ROOT}/state.json") as file:
                self.state = json.load(file)
        return self.state

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with open(f"{ROOT}/state.json", "w") as file:
                file.write(json.dumps(self.state))
        self.lock.close()


def scenario() -> dict[str, Any]:
    with open(f"{ROOT}/scenario.json") as file:
        found: dict[str, Any] = json.load(file)
    return found


def hang() -> None:
    import time

    with open(f"{ROOT}/hanging", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)


def befall(command: str) -> str | None:
    """The fault that this call of a command meets, if any."""
    with opened() as state:
        counts = state.setdefault("called", {})
        number = counts[command] = counts.get(command, 0) + 1
    faults = scenario().get("faults", {}).get(command, [])
    return faults[number - 1] if number <= len(faults) else None


def remove_worker(node: str) -> None:
    """A machine goes, and all that runs on it."""
    import contextlib
    import pathlib
    import shutil
    import signal

    home = pathlib.Path(ROOT, "home", node)
    for pid in home.glob("*/gophercite-run/pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)


def remove_nodes(state: dict[str, Any], queued: dict[str, Any]) -> None:
    for node in queued["nodes"]:
        kept = node in scenario().get("left_behind", ())
        if not kept and state["nodes"].pop(node, None) is not None:
            remove_worker(node)


def add_node(state: dict[str, Any], name: str, queued: str | None) -> None:
    for number in range(scenario().get("workers", 1)):
        os.makedirs(f"{ROOT}/home/{name}/{number}")
    state["nodes"][name] = {"looks": 0, "queued": queued}


def create(words: list[str], flags: dict[str, str]) -> None:
    (name,) = words
    with opened() as state:
        if name in state["queued"]:
            fail(MESSAGES["exists"])
        if "node-count" in flags:
            many = {"nodeCount": int(flags["node-count"]), "nodeIdPrefix": flags["node-prefix"]}
            spec = {"parent": WHERE, "multisliceParams": many}
            nodes = [f"{flags['node-prefix']}-{n}" for n in range(many["nodeCount"])]
        else:
            spec, nodes = {"parent": WHERE, "nodeId": flags["node-id"]}, [flags["node-id"]]
        number = state["requests"]
        state["requests"] += 1
        state["queued"][name] = {"spec": spec, "nodes": nodes, "looks": 0, "request": number}


def describe(words: list[str], flags: dict[str, str]) -> None:
    (name,) = words
    with opened() as state:
        queued = state["queued"].get(name)
        if queued is None:
            fail(f"ERROR: (gcloud.x) NOT_FOUND: Resource '{WHERE}/{name}' was not found")
        plans = scenario()["states"]
        plan = plans[min(queued["request"], len(plans) - 1)]
        looks = queued["looks"]
        queued["looks"] += 1
        now = plan[min(looks, len(plan) - 1)]
        if queued.get("deleted"):
            queued["deleted"] += 1
            now = "DELETING"
            if queued["deleted"] > 2:
                del state["queued"][name]
        elif now == "ACTIVE":
            if os.path.exists(f"{ROOT}/control/preempt_{queued['request']}"):
                now = plan[min(looks + 1, len(plan) - 1)]
            else:  # until a test says otherwise
                queued["looks"] = looks
                for node in queued["nodes"]:
                    if node not in state["nodes"]:
                        add_node(state, node, name)
        if now in ("SUSPENDED", "SUSPENDING", "DELETING", "GONE"):
            remove_nodes(state, queued)
    reason = {}
    if now.startswith("FAILED"):
        now, _, code = now.partition(":")
        message = "over quota" if code == "quota" else "There is no more capacity in the zone z"
        reason = {"failedData": {"error": {"code": 8, "message": message}}}
    value = {"name": f"{WHERE}/queuedResources/{name}", "state": {"state": now, **reason}}
    print(json.dumps({**value, "tpu": {"nodeSpec": [queued["spec"]]}}))


def list_nodes(words: list[str], flags: dict[str, str]) -> None:
    listed = []
    with opened() as state:
        for name, node in state["nodes"].items():
            plan = scenario().get("nodes", {}).get(name, ["READY"])
            now = plan[min(node["looks"], len(plan) - 1)]
            node["looks"] += 1
            workers = len(os.listdir(f"{ROOT}/home/{name}"))
            one = {"name": f"{WHERE}/nodes/{name}", "state": now}
            one["networkEndpoints"] = [{"ipAddress": f"10.0.0.{n}"} for n in range(workers)]
            if node["queued"]:
                one["queuedResource"] = f"{WHERE}/queuedResources/{node['queued']}"
            listed.append(one)
    print(json.dumps(listed))


def delete_queued(words: list[str], flags: dict[str, str]) -> None:
    assert "force" in flags
    with opened() as state:
        if words[0] not in state["queued"]:
            fail(f"ERROR: (gcloud.x) NOT_FOUND: Resource '{words[0]}' was not found")
        queued = state["queued"][words[0]]
        queued["deleted"] = 1
        remove_nodes(state, queued)


def delete_node(words: list[str], flags: dict[str, str]) -> None:
    with opened() as state:
        del state["nodes"][words[0]]
    remove_worker(words[0])


def workers_of(node: str) -> list[str]:
    """The numbers of a node's workers."""
    folder = f"{ROOT}/home/{node}"
    found = sorted(os.listdir(folder)) if os.path.exists(folder) else []
    if not found:
        fail(f"ERROR: (gcloud.x) NOT_FOUND: node {node} was not found")
    return found


def ssh(words: list[str], flags: dict[str, str]) -> None:
    assert flags["worker"] == "all"
    status = 0
    for number in workers_of(words[0]):
        home = f"{ROOT}/home/{words[0]}/{number}"
        where = {"HOME": home, "FAKE_HOST": f"{words[0]}-w-{number}"}
        os.chdir(home)
        shell = ["bash", "-c", flags["command"]]
        status = os.spawnvpe(os.P_WAIT, "bash", shell, os.environ | where) or status
    sys.exit(status)


def scp(words: list[str], flags: dict[str, str]) -> None:
    import shutil

    *files, target = words
    assert target.endswith(":")
    assert flags["worker"] == "all"
    for number in workers_of(target[:-1]):
        for file in files:
            shutil.copy(file, f"{ROOT}/home/{target[:-1]}/{number}")


COMMANDS = {
    "queued-resources create": create,
    "queued-resources describe": describe,
    "queued-resources delete": delete_queued,
    "tpu-vm list": list_nodes,
    "tpu-vm delete": delete_node,
    "tpu-vm ssh": ssh,
    "tpu-vm scp": scp,
}


def main() -> None:
    given = sys.argv[1:]
    with open(f"{ROOT}/calls.jsonl", "a") as calls:
        calls.write(json.dumps(given) + "\n")
    assert given[:2] == ["compute", "tpus"]
    command = " ".join(given[2:4])
    words = [word for word in given[4:] if not word.startswith("--")]
    split = [word[2:].partition("=") for word in given[4:] if word.startswith("--")]
    flags = {name: value for name, _, value in split}
    assert flags["zone"] == "us-west4-a"
    fault = befall(command)
    if fault == "hang":
        hang()
    if fault == "malformed":
        print('{"name": "projects/p", "sta')
        return
    if fault == "other":
        print("[[1]]")
        return
    if fault in MESSAGES:
        fail(MESSAGES[fault])
    COMMANDS[command](words, flags)
    if fault == "lost":  # done, and the answer never comes
        sys.stdout.flush()
        hang()


if __name__ == "__main__":
    main()
