"""The pods of the example deployment, which has the base and all components."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from core.queues import Queue
from core.settings import Settings
from core.settings.given_settings import PREFIX, is_secret, variable_of
from core.settings.process_settings import settings_of
from core.settings.store_settings import LogSettings
from tests.command_line import options
from tests.deployment.kubernetes.kustomization import (
    FOLDER,
    Resource,
    built,
    containers_of,
    settings_in,
)


@cache
def example() -> list[Resource]:
    return built(FOLDER / "overlays" / "example")


def of_kind(kind: str) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in example() if each["kind"] == kind}


def workloads() -> dict[str, Resource]:
    return of_kind("Deployment") | of_kind("Job")


def scheduled() -> dict[str, Resource]:
    """What each CronJob makes a Job of."""
    return {name: each["spec"]["jobTemplate"] for name, each in of_kind("CronJob").items()}


def pod_of(workload: Resource) -> dict[str, Any]:
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def labels_of(workload: Resource) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def needed_by(words: Sequence[str]) -> set[str]:
    """The variables of all settings that a command of ours reads, required or not."""
    if "--wait" in words:
        return {variable_of(name) for name in {"database_url", *LogSettings.model_fields}}
    names = settings_of(words[1], [Queue(name) for name in options(words, "--queue")])
    # Payments that move no money have no place in production; no process waits for a file.
    return {
        variable_of(name)
        for name in names - {"ready_file"}
        if not name.startswith("payments_sandbox_")
    }


@dataclass(frozen=True)
class Process:
    """A container of ours, by the name of its workload and its own."""

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
        """The variables of all settings that it reads, required or not."""
        return needed_by(self.words)

    def secrets(self) -> dict[str, dict[str, Any]]:
        """The settings that come from a Secret, each with its place."""
        return {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in self.container["env"]
            if "secretKeyRef" in each.get("valueFrom", {})
        }

    def values(self) -> dict[str, str]:
        """The settings that have a value in the example."""
        config = of_kind("ConfigMap")
        found = {each["name"]: each["value"] for each in self.container["env"] if "value" in each}
        for name in self._config_maps():
            found |= config[name]["data"]
        return {name: value for name, value in found.items() if name.startswith(PREFIX)}

    def may_hold(self) -> set[str]:
        """The settings that an overlay may give to it, beside those from Secrets."""
        folder, maps = FOLDER / "base/settings", self._config_maps()
        files = [folder / f"{name.removeprefix('pressroom-')}.env" for name in maps]
        return set(self.values()).union(*(settings_in(file) for file in files))

    def _config_maps(self) -> Iterator[str]:
        for each in self.container["envFrom"]:
            yield each["configMapRef"]["name"]


def processes() -> list[Process]:
    return [
        Process(name, container)
        for name, workload in workloads().items()
        for container in containers_of(workload)
    ]


def of_secrets() -> set[str]:
    """The variables of secrets, and of the names that go with them."""
    names = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    return {variable_of(name) for name in names | {"s3_access_key", "s3_admin_access_key"}}
