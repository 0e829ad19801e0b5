"""The manifest for GKE, read back by a YAML parser."""

from typing import Any

import accelerators
import gin_files
import jobset
import pytest
import yaml

TRAINING = ["--", "--gin_file=gin_configs/sft_sample_world.gin", "--gin.MODEL_DIR=gs://b/runs/a"]
GIVEN = ["run1", "--accelerator=v5e-256", "--image=us-docker.pkg.dev/p/i/gophercite:1"]


def rendered(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert jobset.main(arguments) == 0
    value = yaml.safe_load(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def pod_of(value: dict[str, Any]) -> dict[str, Any]:
    (job,) = value["spec"]["replicatedJobs"]
    pod: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return pod


def test_each_slice_is_a_job_and_each_host_a_pod(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--slices=2", "--spot", "--service-account=trainer", "--restarts=7", "--grace=90"]
    value = rendered(capsys, *GIVEN, *options, *TRAINING)
    assert (value["apiVersion"], value["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert value["metadata"]["name"] == "run1"
    (job,) = value["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (job["replicas"], spec["parallelism"], spec["completions"]) == (2, 64, 64)
    assert spec["backoffLimit"] == 0
    pod = pod_of(value)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "16x16",
        "cloud.google.com/gke-spot": "true",
    }
    assert (pod["serviceAccountName"], pod["terminationGracePeriodSeconds"]) == ("trainer", 90)
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert container["resources"]["requests"] == {"google.com/tpu": 4}
    command = container["command"]
    assert command[:2] == ["python", "launch/keep_running.py"]
    train = command.index("launch/train.py")
    assert command[train + 1 :] == ["--distributed", *TRAINING[1:]]


def test_what_is_hopeless_is_not_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    value = rendered(capsys, *GIVEN, "--restarts=7", *TRAINING)
    policy = value["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 7
    assert policy["rules"] == [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    (job,) = value["spec"]["replicatedJobs"]
    disrupted, failed = job["template"]["spec"]["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Count"
    assert failed["action"] == "FailJob"
    name = pod_of(value)["containers"][0]["name"]
    assert failed["onExitCodes"] == {"containerName": name, "operator": "In", "values": [1, 2]}
    assert "cloud.google.com/gke-spot" not in pod_of(value)["nodeSelector"]


def test_flags_reach_the_training_as_they_were_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """Kubernetes turns `$$` into `$`, and `$(NAME)` into a variable's value."""
    hostile = """--gin.MODEL_DIR=gs://b/"'${IMAGE}: [#]\n- $(HOME) $$ {x}"""
    value = rendered(capsys, *GIVEN, *TRAINING[:2], hostile)
    word = pod_of(value)["containers"][0]["command"][-1]
    assert word.replace("$$", "$") == hostile
    assert "$" not in word.replace("$$", "")


@pytest.mark.parametrize(
    ("name", "label", "topology", "hosts", "chips"),
    [
        ("v3-8", "tpu-v3-device", "2x2", 1, 4),
        ("v3-256", "tpu-v3-slice", "8x16", 32, 4),
        ("v4-32", "tpu-v4-podslice", "2x2x4", 4, 4),
        ("v5litepod-8", "tpu-v5-lite-podslice", "2x4", 1, 8),
        ("v5e-16", "tpu-v5-lite-podslice", "4x4", 4, 4),
        ("v5p-128", "tpu-v5p-slice", "4x4x4", 16, 4),
        ("v6e-1", "tpu-v6e-slice", "1x1", 1, 1),
        ("v6e-64", "tpu-v6e-slice", "8x8", 16, 4),
    ],
)
def test_slices(name: str, label: str, topology: str, hosts: int, chips: int) -> None:
    found = accelerators.parse(name)
    assert (found.node_label, found.topology) == (label, topology)
    assert (found.hosts, found.chips_of_host) == (hosts, chips)


def test_names_beyond_unicode_s_first_plane_are_yaml_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON's escapes write them as two surrogates, which YAML doesn't join."""
    value = rendered(capsys, *GIVEN, *TRAINING[:-1], "--gin.MODEL_DIR=gs://b/🙂")
    assert pod_of(value)["containers"][0]["command"][-1] == "--gin.MODEL_DIR=gs://b/🙂"


def test_every_topology_has_as_many_chips_as_its_slice() -> None:
    for name, generation in accelerators.GENERATIONS.items():
        for chips, topology in generation.topologies.items():
            product = 1
            for side in topology.split("x"):
                product *= int(side)
            assert product == chips, (name, topology)
            found = accelerators.parse(f"{name}-{chips * generation.cores}")
            assert found.hosts * found.chips_of_host == chips


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run 1", *GIVEN[1:], *TRAINING], 2, "NAME is 'run 1'"),
        ([*GIVEN, "--image=a b", *TRAINING], 2, "--image is 'a b'"),
        ([*GIVEN, "--accelerator=v5e-3", *TRAINING], 2, "slices of v5litepod have 1, 4, 8"),
        ([*GIVEN, "--slices=0", *TRAINING], 2, "--slices is 0"),
        ([*GIVEN, "--restarts=200000", *TRAINING], 2, "is 200000: must be from 1 to 100000"),
        ([*GIVEN, "--image=us/gophercité:1", *TRAINING], 2, "--image is 'us/gophercité:1'"),
        ([*GIVEN], 2, "go after --"),
        ([*GIVEN, *TRAINING[:2], "--gin.MODEL_DIR=a"], 2, "must be in a bucket"),
        ([*GIVEN, *TRAINING[:2], "--gin.MODEL_DIR=runs/gs://a"], 2, "must be in a bucket"),
        ([*GIVEN, *TRAINING, "--gin.INITIAL_CHECKPOINT=../."], 1, "this is on your machine"),
        ([*GIVEN, *TRAINING, "--gin.TRAIN_STEP=1"], 1, "did you mean TRAIN_STEPS?"),
        (
            [*GIVEN, *TRAINING, "--gin.INITIAL_CHECKPOINT=/usr/bin"],
            1,
            "--gin.INITIAL_CHECKPOINT is /usr/bin: this is on your machine and not in this "
            "repository, of which the image is made",
        ),
    ],
)
def test_what_can_t_be_is_refused(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if status == 2:
        with pytest.raises(SystemExit) as refused:
            jobset.main(arguments)
        found = refused.value.code
    else:
        found = jobset.main(arguments)
    assert found == status
    assert message in capsys.readouterr().err


def test_a_gin_file_must_be_named_as_the_workers_find_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(gin_files.ROOT / "gin_configs" / "loop")
    places = [f"--gin.{name}=gs://a/b" for name in ("MODEL_DIR", "RECORDS", "INITIAL_CHECKPOINT")]
    assert jobset.main([*GIVEN, "--", "--gin_file=sft_rated_rounds.gin", *places]) == 1
    assert "sft_rated_rounds.gin is a path from this folder on" in capsys.readouterr().err
