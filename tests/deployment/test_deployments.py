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
    """Attributes:
    settings: the variables that it may be handed, by value or in a file.
    given: those of them that have a value, or without which it is not started.
    """

    name: str
    words: list[str]
    settings: set[str]
    given: set[str]
    needed: set[str]


def of_compose() -> list[Process]:
    found = []
    by_file = {each: variable_of(name) for each, name in files.secrets().items()}
    secret = set(by_file.values())
    for name, service in files.ours().items():
        variables: dict[str, str] = service["environment"]
        ours = {each: value for each, value in variables.items() if each.startswith(PREFIX)}
        # A secret is a file; a listing of a container would show a variable's value.
        assert secret.isdisjoint(ours), name
        # The variable of the setting that each gives, itself or by a file.
        settings = {each: by_file.get(each, each) for each in ours}
        given = {
            settings[each]
            for each, value in ours.items()
            if settings[each] in secret or _has_value(value)
        }
        words = service["command"]
        found.append(Process(name, words, {*settings.values()}, given, pods.needed_by(words)))
    return found


def _has_value(value: str) -> bool:
    """Return whether it is written out, has a default, or stops Compose where it has no value."""
    from_env = files.VARIABLE.search(value)
    return from_env is None or from_env[2] == ":?" or bool(from_env[3])


def of_kubernetes() -> list[Process]:
    found = []
    for each in pods.processes():
        # A value in a file that all can read, and a place for it in a Secret: which one counts?
        assert not each.may_hold() & each.secrets().keys(), each
        kept = {name for name, place in each.secrets().items() if not place.get("optional")}
        settings = each.may_hold() | each.secrets().keys()
        given = each.values().keys() | kept
        found.append(Process(str(each), each.words, settings, given, each.needs()))
    return found


each_deployment = pytest.mark.parametrize("processes_of", [of_compose, of_kubernetes])
Deployed = Callable[[], list[Process]]


@each_deployment
def test_deployment_commands_are_valid_and_each_queue_has_one_worker(
    processes_of: Deployed,
) -> None:
    for process in processes_of():
        require_accepted(process.words)
    assert {process.words[1] for process in processes_of()} >= {"serve", "migrate", "bucket"}
    served = [
        queue
        for process in processes_of()
        if process.words[1] == "worker"
        for queue in plan_serving(
            [Queue(name) for name in options(process.words, "--queue")]
        ).limits
    ]
    assert sorted(served) == sorted(Queue)


@each_deployment
def test_deployment_processes_get_exactly_the_settings_they_need(processes_of: Deployed) -> None:
    for process in processes_of():
        assert process.settings == process.needed, process.name


@each_deployment
def test_deployment_processes_have_every_required_setting(processes_of: Deployed) -> None:
    for process in processes_of():
        required = files.required_names() & process.needed
        if process.words[1] == "serve":
            required |= {"PRESSROOM_TRUSTED_PROXIES"}
        if processes_of is of_compose:
            # Elsewhere the role of the machine may stand for it.
            required |= {"PRESSROOM_S3_ACCESS_KEY"} & process.needed
        assert required <= process.given, process.name


def test_decoding_worker_holds_no_keys_for_payments_mail_or_metrics() -> None:
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    stores = {"database_url", "s3_secret_key", "redis_url", "broker_url", "cache_url"}
    assert secrets & list_settings("worker", [Queue.MEDIA]) == stores | {"encryption_keys"}
    more = {"read_database_url", "secret_keys", "encryption_keys"}
    assert secrets & list_settings("worker", [Queue.EXPORT, Queue.BULK]) == stores | more
