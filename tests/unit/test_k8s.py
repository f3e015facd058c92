"""The manifests for Kubernetes: their commands are those of the program, and their names lead to each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import loadtest
from loadtest.cli import main
from loadtest.drive.options import Options
from loadtest.drive.workers.wanted import place_of, wanted

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "k8s"
FOUND: dict[tuple[str, str], dict[str, Any]] = {
    (item["kind"], item["metadata"]["name"]): item
    for path in sorted(FOLDER.glob("*.yaml"))
    for item in yaml.safe_load_all(path.read_text())
}
JOBS = ("loadtest-master", "loadtest-worker")


def pod(job: str) -> dict[str, Any]:
    found: dict[str, Any] = FOUND["Job", job]["spec"]["template"]
    return found


def container(job: str) -> dict[str, Any]:
    [found] = pod(job)["spec"]["containers"]
    return dict(found)


def parsed(job: str) -> click.Context:
    """Take a job's arguments as the program does; raises for an option that does not exist."""
    name, *words = container(job)["args"]
    return main.commands[name].make_context(name, words)


def test_there_is_what_a_run_on_a_cluster_needs() -> None:
    kinds = sorted(kind for kind, _ in FOUND)
    assert kinds == ["Job", "Job", "NetworkPolicy", "NetworkPolicy", "PersistentVolumeClaim", "Secret", "Service"]
    versions = {"Job": "batch/v1", "NetworkPolicy": "networking.k8s.io/v1"}
    assert all(item["apiVersion"] == versions.get(kind, "v1") for (kind, _), item in FOUND.items())


def test_the_master_expects_as_many_workers_as_are_started_and_listens_where_they_call() -> None:
    given, called = parsed("loadtest-master").params, parsed("loadtest-worker").params
    names = ("expect_workers", "wait", "bind")
    workers = wanted(Options(scenario=Path("x.py"), **{name: given[name] for name in names}))
    assert workers is not None
    job = FOUND["Job", "loadtest-worker"]["spec"]
    assert workers.count == job["completions"] == job["parallelism"]
    host, port = place_of(called["master"], "--master")
    service = FOUND["Service", host]["spec"]
    [entry] = service["ports"]
    [exposed] = container("loadtest-master")["ports"]
    assert port == entry["port"] == exposed["containerPort"] == workers.port
    assert entry["targetPort"] == exposed["name"]
    assert service["selector"].items() <= pod("loadtest-master")["metadata"]["labels"].items()


def test_workers_alone_reach_the_master_and_nobody_a_worker() -> None:
    for job in JOBS:
        policy = FOUND["NetworkPolicy", job]["spec"]
        assert policy["podSelector"]["matchLabels"] == pod(job)["metadata"]["labels"]
        assert policy["policyTypes"] == ["Ingress"]
    [rule] = FOUND["NetworkPolicy", "loadtest-master"]["spec"]["ingress"]
    [source] = rule["from"]
    assert source["podSelector"]["matchLabels"] == pod("loadtest-worker")["metadata"]["labels"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 5557}]
    assert "ingress" not in FOUND["NetworkPolicy", "loadtest-worker"]["spec"]


@pytest.mark.parametrize("job", JOBS)
def test_keys_come_from_the_secret_into_the_environment_of_each(job: str) -> None:
    variables = {entry["name"]: entry.get("valueFrom", {}) for entry in container(job)["env"]}
    [named] = re.findall(r"servers\.api_key_env=(\w+)", " ".join(container("loadtest-master")["args"]))
    wanted_key = variables[named]["secretKeyRef"]
    assert wanted_key["key"] in FOUND["Secret", wanted_key["name"]]["stringData"]
    assert not any("value" in entry for entry in container(job)["env"])


@pytest.mark.parametrize("job", JOBS)
def test_pods_run_as_the_images_user_and_can_write_where_they_must(job: str) -> None:
    spec, one = pod(job)["spec"], container(job)
    [uid] = re.findall(r"useradd .*--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == int(uid)
    assert one["image"] == f"loadtest:{loadtest.__version__}"
    assert one["securityContext"]["readOnlyRootFilesystem"]
    mounts = {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(mounts.values()) == set(volumes)
    params = parsed(job).params
    written = params["out"] if job == "loadtest-master" else params["spool"]
    assert {str(written), "/tmp"} == set(mounts)
    if job == "loadtest-master":
        claim = volumes[mounts["/reports"]]["persistentVolumeClaim"]["claimName"]
        assert ("PersistentVolumeClaim", claim) in FOUND
        assert (ROOT / params["scenario"]).is_file()


def test_the_page_on_it_names_every_file() -> None:
    page = (FOLDER / "README.md").read_text()
    assert all(path.name in page for path in FOLDER.glob("*.yaml"))
