"""Tests that the Compose file and the Kubernetes example give each process its settings."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from core.queues import Queue
from core.settings import Settings
from core.settings.given_settings import PREFIX, is_secret, variable_of
from core.settings.process_settings import list_settings
from tests.support.commands.command_line import options, require_accepted
from tests.support.deployment import files, pods
from workers.serving import plan_serving

pytestmark = pytest.mark.tier("check")


@dataclass(frozen=True)
class Process:
    """A process that is declared in the Compose file or in the Kubernetes manifests.

    Attributes:
        name: the name of the service or container.
        words: the words of the command.
        settings: the variables of settings that the process can get, as values or as files.
        provided: the settings that always have a value when the process starts.
        needed: the settings that the process reads.
    """

    name: str
    words: list[str]
    settings: set[str]
    provided: set[str]
    needed: set[str]


def compose_processes() -> list[Process]:
    processes = []
    # A process reads a secret setting from a file, and an environment variable contains the file's
    # path. ``file_variables`` maps each such environment variable to the one that would contain the
    # secret itself.
    file_variables = {each: variable_of(name) for each, name in files.secrets().items()}
    secret_variables = set(file_variables.values())
    for name, service in files.our_services().items():
        environment: dict[str, str] = service["environment"]
        variables = {each: value for each, value in environment.items() if each.startswith(PREFIX)}
        # Secrets must be files, because tools that list containers show the values of environment
        # variables.
        assert secret_variables.isdisjoint(variables), name
        settings = {each: file_variables.get(each, each) for each in variables}
        provided = {
            settings[each]
            for each, value in variables.items()
            if settings[each] in secret_variables or _has_value(value)
        }
        words = service["command"]
        processes.append(
            Process(name, words, {*settings.values()}, provided, pods.settings_needed_by(words))
        )
    return processes


def _has_value(value: str) -> bool:
    """Return whether Compose guarantees that this environment variable has a value."""
    from_env = files.VARIABLE.search(value)
    return from_env is None or from_env[2] == ":?" or bool(from_env[3])


def kubernetes_processes() -> list[Process]:
    processes = []
    for each in pods.processes():
        # No setting may come from both a ConfigMap and a Secret.
        assert not each.allowed_settings() & each.secrets().keys(), each
        required_secrets = {
            name for name, reference in each.secrets().items() if not reference.get("optional")
        }
        settings = each.allowed_settings() | each.secrets().keys()
        provided = each.values().keys() | required_secrets
        processes.append(Process(str(each), each.words, settings, provided, each.needs()))
    return processes


each_deployment = pytest.mark.parametrize(
    "list_processes", [compose_processes, kubernetes_processes]
)
ListProcesses = Callable[[], list[Process]]


@each_deployment
def test_deployment_commands_are_valid_and_each_queue_has_one_worker(
    list_processes: ListProcesses,
) -> None:
    for process in list_processes():
        require_accepted(process.words)
    assert {process.words[1] for process in list_processes()} >= {"serve", "migrate", "bucket"}
    served = [
        queue
        for process in list_processes()
        if process.words[1] == "worker"
        for queue in plan_serving(
            [Queue(name) for name in options(process.words, "--queue")]
        ).limits
    ]
    assert sorted(served) == sorted(Queue)


@each_deployment
def test_deployment_processes_get_exactly_the_settings_they_need(
    list_processes: ListProcesses,
) -> None:
    for process in list_processes():
        assert process.settings == process.needed, process.name


@each_deployment
def test_deployment_processes_have_every_required_setting(list_processes: ListProcesses) -> None:
    for process in list_processes():
        required = files.required_names() & process.needed
        if process.words[1] == "serve":
            required |= {"PRESSROOM_TRUSTED_PROXIES"}
        if list_processes is compose_processes:
            # In Kubernetes, a process may get temporary keys from its cloud role instead of this
            # access key.
            required |= {"PRESSROOM_S3_ACCESS_KEY"} & process.needed
        assert required <= process.provided, process.name


def test_decoding_worker_holds_no_keys_for_payments_mail_or_metrics() -> None:
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    stores = {"database_url", "s3_secret_key", "redis_url", "broker_url", "cache_url"}
    assert secrets & list_settings("worker", [Queue.MEDIA]) == stores | {"encryption_keys"}
    file_worker_secrets = stores | {"read_database_url", "secret_keys", "encryption_keys"}
    assert secrets & list_settings("worker", [Queue.EXPORT, Queue.BULK]) == file_worker_secrets
