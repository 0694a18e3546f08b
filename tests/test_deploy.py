"""Files of deploy/: complete, of the pinned versions, and with commands that are right."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from torchrl_elegant.cli import tournament as command
from torchrl_elegant.tournament import run

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PAGES = sorted(DEPLOY.rglob("*.yaml"))
FILES = [*PAGES, DEPLOY / "README.md", DEPLOY / "Dockerfile"]


def page(name: str) -> dict:
    return yaml.safe_load((DEPLOY / name).read_text())


def cluster_of(name: str) -> dict:
    spec = page(name)["spec"]
    return spec if name.endswith("cluster.yaml") else spec["rayClusterSpec"]


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text()
    return re.search(rf"^{package}==(\S+)", lines, re.MULTILINE)[1]


def version() -> str:
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser["metadata"]["version"]


def commands(path: Path) -> list[list[str]]:
    """Words of each tournament that a file begins, as a shell splits them."""
    text = path.read_text()
    if path.suffix == ".yaml":
        job = yaml.safe_load(text).get("spec", {}).get("entrypoint")
        return [shlex.split(job)[1:]] if job else []
    text = re.sub(r"^#", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = re.findall(r"\btournament ((?:[\w.]+=[^\s\"`]+ *)+)", text)
    return [["tournament", *words.split()] for words in found if "env=" in words]


class Begun(Exception):
    """A tournament would run now."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_command_is_one_that_the_command_line_takes(path, monkeypatch, tmp_path):
    begun = []

    def begin(configs, env=None, *, slots=None, **options):
        # All checks of the options themselves; nothing is made.
        begun.append(run._options(configs, env, slots, options)[0])
        raise Begun

    monkeypatch.setattr(command, "tournament", begin)
    monkeypatch.setattr(command, "keep_freed_blocks", lambda: None)
    monkeypatch.setattr(command.gc, "freeze", lambda: None)
    for words in commands(path):
        assert words[0] == "tournament"
        with pytest.raises(Begun):
            command.tournament_command(words[1:], program="torchrl-elegant")
    expected = {"job.yaml": 1, "README.md": 2, "Dockerfile": 1}
    assert len(begun) == expected.get(path.name, 0)
    if path.name == "job.yaml":
        assert begun[0].executor == "ray"


def test_a_wrong_command_is_found(monkeypatch, capsys):
    monkeypatch.setattr(command, "keep_freed_blocks", lambda: None)
    monkeypatch.setattr(command.gc, "freeze", lambda: None)
    words = ["env=CartPole-v1", "exekutor=ray"]
    assert command.tournament_command(words, program="torchrl-elegant") == 2
    assert "unknown option `exekutor`" in capsys.readouterr().err


def test_versions_are_those_that_are_pinned():
    images = re.findall(r"image: (\S+)", "\n".join(path.read_text() for path in PAGES))
    assert len(images) == 5
    assert {image.rpartition(":")[2] for image in images} == {version()}
    assert f"torchrl-elegant:{version()}" in (DEPLOY / "README.md").read_text()
    for name in ("kuberay/cluster.yaml", "kuberay/job.yaml"):
        assert cluster_of(name)["rayVersion"] == pinned("ray")


@pytest.mark.parametrize("name", ["kuberay/cluster.yaml", "kuberay/job.yaml"])
def test_a_cluster_of_kubernetes_grows_shrinks_and_shares_a_folder(name):
    made = page(name)
    assert made["apiVersion"] == "ray.io/v1"
    assert made["kind"] == ("RayJob" if "job" in name else "RayCluster")
    spec = cluster_of(name)
    assert spec["enableInTreeAutoscaling"] is True
    head, (workers,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert workers["minReplicas"] == 0 < workers["maxReplicas"]
    assert workers["template"]["spec"]["restartPolicy"] == "Never"
    claim = page("kuberay/volume.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for group in (head, workers):
        # Ray takes texts alone here.
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        inside = group["template"]["spec"]
        (container,), (volume,) = inside["containers"], inside["volumes"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        (mount,) = container["volumeMounts"]
        assert mount == {"name": volume["name"], "mountPath": "/runs"}
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_both_clusters_of_kubernetes_are_the_same():
    assert cluster_of("kuberay/cluster.yaml") == cluster_of("kuberay/job.yaml")


def test_the_cluster_of_a_cloud_has_a_head_without_pods_and_workers_that_go():
    made = page("cluster.yaml")
    types = made["available_node_types"]
    head = types[made["head_node_type"]]
    assert head["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in made["head_start_ray_commands"][-1]
    workers = [one for name, one in types.items() if name != made["head_node_type"]]
    assert all(one["min_workers"] == 0 < one["max_workers"] for one in workers)
    assert sum(one["max_workers"] for one in workers) <= made["max_workers"]
    assert {"provider", "auth", "docker", "cluster_name"} <= made.keys()
    assert any(":/runs" in one for one in made["docker"]["run_options"])


def test_the_image_pins_torch_first_and_is_not_run_by_root():
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = re.findall(r"^([A-Z]+) (.*)", text, re.MULTILINE)
    (entry,) = [text for name, text in steps if name == "ENTRYPOINT"]
    assert entry == '["torchrl-elegant"]'
    (user,) = [text for name, text in steps if name == "USER"]
    assert user != "root"
    runs = [text for name, text in steps if name == "RUN"]
    torch, package = (
        next(i for i, run in enumerate(runs) if what in run) for what in ("torch==", "$EXTRAS")
    )
    assert torch < package
    # What is copied is there, and is not kept from the build.
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    for name, line in steps:
        for word in line.split()[:-1] if name == "COPY" else ():
            assert (ROOT / word).exists()
            assert Path(word).as_posix() in kept
    extras = ConfigParser(interpolation=None)
    extras.read(ROOT / "setup.cfg")
    (named,) = [line for name, line in steps if name == "ARG" and line.startswith("EXTRAS=")]
    assert {"ray"} <= set(named[7:].split(",")) <= set(extras["options.extras_require"])
