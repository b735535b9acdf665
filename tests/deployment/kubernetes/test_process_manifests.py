import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from api.drain import MAX_CLOSE_SECONDS
from cli.processes import API_GRACE_SECONDS
from core.queues import Queue
from core.settings import Settings
from core.settings.given_settings import variable_of
from tests.support.commands.command_line import option, require_accepted
from tests.support.deployment import files, pods
from tests.support.http.openapi import openapi_document
from workers.stopping import MAX_SHUTDOWN_SECONDS

pytestmark = pytest.mark.tier("check")

BACKUP_VERIFICATION = "pressroom-verify-backups"


def test_kubernetes_backup_verification_has_all_settings_its_command_needs() -> None:
    [container] = pods.containers_of(pods.resources_of_kind("CronJob")[BACKUP_VERIFICATION])
    process = pods.Process(BACKUP_VERIFICATION, container)
    require_accepted(process.words)
    variables = process.values().keys() | process.secrets().keys()
    owner_variables = {"PRESSROOM_MIGRATION_DATABASE_URL"}
    backup_variables = {variable_of(name) for name in ("backup_url", "backup_keys", "s3_endpoint")}
    assert files.required_names() | backup_variables | owner_variables <= variables
    assert variables <= {variable_of(name) for name in Settings.model_fields}


def test_kubernetes_backup_verification_has_no_more_rights_than_the_migration() -> None:
    job = pods.job_templates()[BACKUP_VERIFICATION]
    job_pod = pods.pod_of(job)
    migration_pod = pods.pod_of(pods.workloads()["pressroom-migrate"])
    for name in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert job_pod[name] == migration_pod[name]
    assert job_pod["volumes"] == migration_pod["volumes"]
    job_security = job_pod["containers"][0]["securityContext"]
    assert job_security == migration_pod["containers"][0]["securityContext"]
    labels = pods.labels_of(job)
    for workload in pods.resources_of_kind("Deployment").values():
        assert not workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


# Maps the name of a secret to the only workload that may read the secret.
WORKLOADS_OF_OWNER_SECRETS = {
    "PRESSROOM_MIGRATION_DATABASE_URL": "pressroom-migrate",
    "PRESSROOM_S3_ADMIN_ACCESS_KEY": "pressroom-bucket",
    "PRESSROOM_S3_ADMIN_SECRET_KEY": "pressroom-bucket",
}


def api() -> pods.Process:
    [process] = [each for each in pods.processes() if each.words[1] == "serve"]
    return process


def workers() -> list[pods.Process]:
    return [each for each in pods.processes() if each.words[1] == "worker"]


def test_kubernetes_secrets_come_from_the_vault_and_reach_only_their_processes() -> None:
    required = files.required_names()
    used_secrets = set()
    for process in pods.processes():
        assert process.allowed_settings().isdisjoint(pods.secret_variables())
        assert process.secrets().keys() <= pods.secret_variables()
        for name, reference in process.secrets().items():
            assert reference["key"] == name
            assert reference.get("optional", False) == (name not in required)
            is_owner_secret = name in WORKLOADS_OF_OWNER_SECRETS
            assert reference["name"] == (
                "pressroom-owner" if is_owner_secret else "pressroom-settings"
            )
            assert WORKLOADS_OF_OWNER_SECRETS.get(name, process.workload) == process.workload
            used_secrets.add(reference["name"])
    created_secrets = {
        each["spec"]["target"]["name"] for each in pods.resources_of_kind("ExternalSecret").values()
    }
    assert created_secrets == used_secrets
    [monitored] = pods.resources_of_kind("ServiceMonitor")["pressroom-api"]["spec"]["endpoints"]
    token = monitored["authorization"]["credentials"]
    reference = api().secrets()["PRESSROOM_METRICS_TOKEN"]
    assert (token["name"], token["key"]) == (reference["name"], reference["key"])


def test_settings_of_the_kubernetes_example_are_valid() -> None:
    keys = f"k1:{'A' * 43}="
    text = {
        **api().values(),
        "PRESSROOM_DATABASE_URL": "postgresql://pressroom_app:word@postgres:5432/pressroom",
        "PRESSROOM_REDIS_URL": "rediss://pressroom:word@redis:6379/0",
        "PRESSROOM_S3_ACCESS_KEY": "pressroom",
        "PRESSROOM_S3_SECRET_KEY": "0123456789abcdef",
        "PRESSROOM_SECRET_KEYS": keys,
        "PRESSROOM_ENCRYPTION_KEYS": keys,
    }
    values = {name: text.get(variable_of(name)) for name in Settings.model_fields}
    settings = Settings.model_validate(
        {name: value for name, value in values.items() if value is not None}
    )
    assert settings.forwarding_networks()
    assert isinstance(settings.redis_url, SecretStr)


def test_kubernetes_images_share_one_release_and_deployments_wait_for_migration() -> None:
    workers = {each.container["image"] for each in pods.processes() if "worker" in each.workload}
    [image] = {each.container["image"] for each in pods.processes()} - workers
    assert image.partition(":")[2] not in ("", "latest")
    # The workers use a larger container image, which also contains language dictionaries.
    assert workers == {f"{image}-worker"}
    migrations = {each.workload for each in pods.processes() if each.words[1:] == ["migrate"]}
    assert migrations == {"pressroom-migrate"}
    waiting = {
        each.workload for each in pods.processes() if each.words[1:] == ["migrate", "--wait"]
    }
    assert waiting == set(pods.resources_of_kind("Deployment"))
    assert migrations | {"pressroom-bucket"} == set(pods.resources_of_kind("Job"))


def test_kubernetes_probes_use_existing_api_paths_and_the_api_port() -> None:
    container = api().container
    [port] = container["ports"]
    assert str(port["containerPort"]) == option(api().words, "--port")
    assert option(api().words, "--host") == "0.0.0.0"
    probes = {
        name: container[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {each["port"] for each in probes.values()} == {port["name"]}
    [monitored] = pods.resources_of_kind("ServiceMonitor")["pressroom-api"]["spec"]["endpoints"]
    served = openapi_document()["paths"].keys()
    assert {each["path"] for each in probes.values()} | {monitored["path"]} <= served
    # A process that isn't ready gets no calls, but isn't killed.
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert probes["livenessProbe"]["path"] == probes["startupProbe"]["path"] == "/healthz"


@pytest.mark.parametrize("process", workers(), ids=str)
@pytest.mark.parametrize(
    ("age", "lives", "is_ready"), [(None, True, False), (5, True, True), (60, False, False)]
)
def test_kubernetes_worker_probes_depend_on_the_age_of_the_alive_file(
    process: pods.Process, tmp_path: Path, age: int | None, lives: bool, is_ready: bool
) -> None:
    path_in_container = process.values()["PRESSROOM_ALIVE_FILE"]
    file = tmp_path / "alive"
    if age is not None:
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    for probe, expected in (("livenessProbe", lives), ("readinessProbe", is_ready)):
        [*shell, script] = process.container[probe]["exec"]["command"]
        assert path_in_container in script
        words = [*shell, script.replace(path_in_container, str(file))]
        completed = subprocess.run(words, check=False, capture_output=True)
        assert (completed.returncode == 0) == expected, probe
    # When a container restarts, its pod keeps the files in /tmp. The new container must delete the
    # old file that the liveness probe checks, because the probe would kill the container otherwise.
    start_command = process.container["lifecycle"]["postStart"]["exec"]["command"]
    assert start_command == ["rm", "-f", path_in_container]
    # A stalled worker doesn't handle SIGTERM, so SIGKILL follows after a second.
    assert process.container["livenessProbe"]["terminationGracePeriodSeconds"] == 1


def test_kubernetes_grace_periods_exceed_the_shutdown_times() -> None:
    grace_seconds = {
        name: pods.pod_of(each)["terminationGracePeriodSeconds"]
        for name, each in pods.workloads().items()
    }
    drain = Settings.model_fields["api_drain"].default
    assert drain + API_GRACE_SECONDS + MAX_CLOSE_SECONDS < grace_seconds["pressroom-api"]
    for worker in workers():
        default = Settings.model_fields["worker_grace"].default
        assert default + MAX_SHUTDOWN_SECONDS < grace_seconds[worker.workload]


def test_kubernetes_media_worker_counts_its_own_cpu_limit_instead_of_node_cores() -> None:
    [worker] = [each for each in workers() if Queue.MEDIA in each.queues]
    environment = {each["name"]: each for each in worker.container["env"]}
    counted = environment["PYTHON_CPU_COUNT"]["valueFrom"]["resourceFieldRef"]
    assert counted == {"resource": "limits.cpu"}
    assert float(worker.container["resources"]["limits"]["cpu"]) >= 1
    # Python reads the variable PYTHON_CPU_COUNT only since version 3.13.
    image = re.search(r"^ARG PYTHON_IMAGE=python:3\.(\d+)", files.DOCKERFILE.read_text(), re.M)
    assert image
    assert int(image[1]) >= 13
