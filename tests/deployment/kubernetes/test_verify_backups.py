"""The CronJob that verifies backups has what the command needs, and no more rights than others."""

import pytest

from core.settings import Settings
from core.settings.given_settings import variable_of
from tests.command_line import require_accepted
from tests.deployment import files
from tests.deployment.kubernetes import pods
from tests.deployment.kubernetes.kustomization import containers_of

pytestmark = pytest.mark.check

NAME = "pressroom-verify-backups"


def test_it_runs_the_command_with_all_that_the_command_needs() -> None:
    [container] = containers_of(pods.of_kind("CronJob")[NAME])
    process = pods.Process(NAME, container)
    require_accepted(process.words)
    given = process.values().keys() | process.secrets().keys()
    owner = {"PRESSROOM_MIGRATION_DATABASE_URL"}
    needed = {variable_of(name) for name in ("backup_url", "backup_keys", "s3_endpoint")}
    assert files.required_names() | needed | owner <= given
    assert given <= {variable_of(name) for name in Settings.model_fields}


def test_its_pod_may_do_as_little_as_a_migration_and_is_none_of_a_deployments() -> None:
    job, migration = pods.scheduled()[NAME], pods.workloads()["pressroom-migrate"]
    own, usual = pods.pod_of(job), pods.pod_of(migration)
    for name in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert own[name] == usual[name]
    assert own["volumes"] == usual["volumes"]
    assert own["containers"][0]["securityContext"] == usual["containers"][0]["securityContext"]
    labels = pods.labels_of(job)
    for workload in pods.of_kind("Deployment").values():
        assert not workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
