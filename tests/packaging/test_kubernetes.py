"""The Kubernetes manifests: valid, locked down, and of settings and commands that there are."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings
from lethe.cli.main import lethe

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
TEXTS = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
DOCUMENTS = [one for text in TEXTS.values() for one in yaml.safe_load_all(text)]
PODS = [
    one["spec"]["template"]["spec"] for one in DOCUMENTS if "template" in one.get("spec", {})
]
CONTAINERS = [one for pod in PODS for one in pod["containers"]]


def named(document: dict[str, Any]) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_a_resource_is_valid(document: dict[str, Any]) -> None:
    # Imported here: tests/schemas.py says why.
    from kubernetes_validate import SchemaNotFoundError, ValidationError, validate

    validate(document, "1.37", strict=True)
    with pytest.raises((ValidationError, SchemaNotFoundError)):
        validate({**document, "spek": {}}, "1.37", strict=True)


def test_there_are_these() -> None:
    assert set(TEXTS) == {"lethe.yaml", "log-init.yaml"}
    assert len(CONTAINERS) == 4


def test_nothing_runs_with_more_than_it_needs() -> None:
    for pod in PODS:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001  # as in the Dockerfile
        assert "uid 10001" in (FOLDER.parents[1] / "Dockerfile").read_text()
    for container in CONTAINERS:
        locked = container["securityContext"]
        assert locked["allowPrivilegeEscalation"] is False
        assert locked["readOnlyRootFilesystem"] is True
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_settings_and_commands_exist_and_no_secret_has_a_value() -> None:
    known = {f"LETHE_{name}".upper() for name in Settings.model_fields}
    (config,) = (one for one in DOCUMENTS if one["kind"] == "ConfigMap")
    assert set(config["data"]) <= known
    assert not any(one["kind"] == "Secret" for one in DOCUMENTS)
    for text in TEXTS.values():
        assert set(re.findall(r"LETHE_[A-Z_]+", text)) <= known
    for container in CONTAINERS:
        command = container.get("command", ["lethe", "serve"])
        assert command[0] == "lethe"
        context = lethe.make_context("lethe", command[1:2])
        assert lethe.get_command(context, command[1]) is not None
        secret = {one["name"] for one in container.get("env", ()) if "valueFrom" in one}
        assert secret <= {"LETHE_DATABASE_PASSWORD", "LETHE_MASTER_KEY"}


def test_only_the_migration_has_the_owners_password() -> None:
    owners = [one["name"] for one in CONTAINERS if "lethe-owner" in str(one)]
    assert owners == ["migrate"]


def test_a_start_may_take_as_long_as_it_waits_for_the_database() -> None:
    """Else a pod is killed before it says why it does not start."""
    (api,) = (one for one in CONTAINERS if one["name"] == "api")
    probe = api["startupProbe"]
    longest = probe["periodSeconds"] * probe["failureThreshold"]
    assert longest >= Settings.model_fields["start_seconds"].default + 30


GIB = 1 << 30


def test_a_fit_reaches_its_own_limit_before_that_of_its_pod() -> None:
    """Else the pod is killed with the worker, as often as a fit may be tried."""
    (worker,) = (one for one in CONTAINERS if one["name"] == "worker")
    set_ = {one["name"]: one["value"] for one in worker["env"]}
    settings = Settings(fit_memory_bytes=int(set_["LETHE_FIT_MEMORY_BYTES"]))
    # docs/scripts.md, Isolation: the kernel's own memory, and what the worker reads it with.
    others = 2 * settings.fit_output_bytes + GIB // 4 + 3 * GIB // 2
    limit = worker["resources"]["limits"]["memory"]
    assert settings.fit_memory_bytes + others <= int(limit.removesuffix("Gi")) * GIB


def test_what_is_to_be_replaced_stands_in_angle_brackets() -> None:
    (api,) = (one for one in CONTAINERS if one["name"] == "api")
    (proxy,) = (one for one in api["env"] if one["name"] == "FORWARDED_ALLOW_IPS")
    (rule,) = (
        rule
        for one in DOCUMENTS
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "lethe-api"
        for rule in one["spec"]["ingress"]
    )
    ingress, _ = (one["namespaceSelector"]["matchLabels"] for one in rule["from"])
    for value in (proxy["value"], *ingress.values()):
        assert re.fullmatch("<.+>", value)


def test_prometheus_alone_reaches_a_worker_at_the_port_of_its_metrics() -> None:
    worker = next(one for one in CONTAINERS if one["name"] == "worker")
    (setting,) = (one for one in worker["env"] if one["name"] == "LETHE_WORKER_METRICS")
    (port,) = worker["ports"]
    assert setting["value"] == f"0.0.0.0:{port['containerPort']}"
    policies = [one["spec"] for one in DOCUMENTS if one["kind"] == "NetworkPolicy"]
    (rule,) = (
        rule
        for spec in policies
        if spec["podSelector"]["matchLabels"].get("app.kubernetes.io/component") == "worker"
        for rule in spec["ingress"]
    )
    assert rule["ports"] == [{"port": port["name"]}]
    assert str(rule["from"]).count("kubernetes.io/metadata.name") == 1
    assert "'monitoring'" in str(rule["from"])
    scraped = [
        one["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"]
        for one in DOCUMENTS
        if one["kind"] == "Deployment"
    ]
    assert scraped == ["8000", str(port["containerPort"])]
