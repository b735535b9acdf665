"""Reads the pods of the example Kubernetes deployment, which uses all Kustomize components."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from core.queues import Queue
from core.settings import Settings
from core.settings.given_settings import PREFIX, is_secret, variable_of
from core.settings.process_settings import list_settings
from core.settings.store_settings import LogSettings
from tests.support.commands.command_line import options
from tests.support.deployment import files
from tests.support.prerequisites import skip_or_fail

FOLDER = files.ROOT / "deploy" / "kubernetes"

Resource = dict[str, Any]

# The name of a generated ConfigMap, which ends with a hash of the settings in the ConfigMap.
_HASHED_NAME = re.compile(r"(name: pressroom-[a-z-]+?)-[bcdfghkmt2-9]{10}$", re.MULTILINE)


@cache
def render_example() -> list[Resource]:
    """Return the resources that Kustomize renders. Remove the hashes from the ConfigMap names."""
    if shutil.which("kubectl") is None:
        skip_or_fail("there is no kubectl")
    words = ["kubectl", "kustomize", str(FOLDER / "overlays" / "example")]
    rendered = subprocess.run(words, check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(_HASHED_NAME.sub(r"\1", rendered.stdout)))


def containers_of(resource: Resource) -> list[dict[str, Any]]:
    workload = resource["spec"].get("jobTemplate", resource)
    pod = workload["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def settings_in(file: Path) -> set[str]:
    return set(re.findall(r"^#?(PRESSROOM_[A-Z0-9_]+)\b", file.read_text(), re.MULTILINE))


def resources_of_kind(kind: str) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in render_example() if each["kind"] == kind}


def workloads() -> dict[str, Resource]:
    return resources_of_kind("Deployment") | resources_of_kind("Job")


def job_templates() -> dict[str, Resource]:
    return {
        name: each["spec"]["jobTemplate"] for name, each in resources_of_kind("CronJob").items()
    }


def pod_of(workload: Resource) -> dict[str, Any]:
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def labels_of(workload: Resource) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def settings_needed_by(words: Sequence[str]) -> set[str]:
    if "--wait" in words:
        return {variable_of(name) for name in {"database_url", *LogSettings.model_fields}}
    names = list_settings(words[1], [Queue(name) for name in options(words, "--queue")])
    # Leave out ``ready_file``, because no container needs the file. Leave out the settings that
    # replace the payment provider and Amazon SNS with the sandbox, because they aren't for
    # production.
    return {
        variable_of(name)
        for name in names - {"ready_file", "sns_base_url"}
        if not name.startswith("payments_sandbox_")
    }


@dataclass(frozen=True)
class Process:
    """A container that runs one of our commands."""

    workload: str
    container: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.workload}/{self.container['name']}"

    @property
    def words(self) -> list[str]:
        words: list[str] = self.container["command"]
        return words

    @property
    def queues(self) -> list[Queue]:
        return [Queue(name) for name in options(self.words, "--queue")]

    def needs(self) -> set[str]:
        return settings_needed_by(self.words)

    def secrets(self) -> dict[str, dict[str, Any]]:
        """Map each setting that comes from a Kubernetes Secret to the Secret's name and key."""
        return {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in self.container["env"]
            if "secretKeyRef" in each.get("valueFrom", {})
        }

    def values(self) -> dict[str, str]:
        """Map each setting to its value in the example, except those from Kubernetes Secrets."""
        config_maps = resources_of_kind("ConfigMap")
        variables = {
            each["name"]: each["value"] for each in self.container["env"] if "value" in each
        }
        for name in self._config_maps():
            variables |= config_maps[name].get("data", {})
        return {name: value for name, value in variables.items() if name.startswith(PREFIX)}

    def allowed_settings(self) -> set[str]:
        """Return the settings that an overlay may set, except those from Kubernetes Secrets."""
        folder = FOLDER / "base/settings"
        sources = [
            folder / f"{name.removeprefix('pressroom-')}.env" for name in self._config_maps()
        ]
        return set(self.values()).union(*map(settings_in, sources))

    def _config_maps(self) -> Iterator[str]:
        for each in self.container["envFrom"]:
            yield each["configMapRef"]["name"]


def processes() -> list[Process]:
    return [
        Process(name, container)
        for name, workload in workloads().items()
        for container in containers_of(workload)
    ]


def secret_variables() -> set[str]:
    """Return the environment variables of all secret settings and of the S3 access keys."""
    names = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    return {variable_of(name) for name in names | {"s3_access_key", "s3_admin_access_key"}}
