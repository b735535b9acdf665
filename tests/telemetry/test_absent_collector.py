"""Tests Pressroom without a telemetry collector, and with a hanging one."""

from collections.abc import Iterator

import pytest

from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack, plain_client
from tests.support.images.pictures import photo
from tests.support.observability.otlp_collector import Collector, running_collector

# A module that Python imports only if Pressroom uses the OpenTelemetry SDK. Other modules of the
# OpenTelemetry SDK may appear in the log even if Pressroom doesn't use the SDK, because the Redis
# client tries to import them.
SDK_MODULE = "opentelemetry.sdk.trace"
# An environment variable that makes Python log the name of each module that it imports.
LOG_IMPORTS = {"PYTHONPROFILEIMPORTTIME": "1"}


@pytest.fixture
def hanging_collector() -> Iterator[Collector]:
    """An OpenTelemetry collector that accepts calls but never responds."""
    with running_collector(silent=True) as collector:
        yield collector


def _upload(stack: Stack, api: Running, port: int) -> None:
    with plain_client(base_url=f"http://{LOOPBACK}:{port}") as client:
        headers = {"Authorization": f"Bearer {stack.create_owner().key}"}
        reply = client.post("/attachments", files={"file": ("a.jpg", photo())}, headers=headers)
    assert reply.status_code == 200, api.log.read_text()


@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    ("variables", "is_loaded"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
    ],
)
def test_telemetry_sdk_is_loaded_only_with_a_configured_collector(
    empty_stack: Stack, variables: dict[str, str], *, is_loaded: bool
) -> None:
    port = free_port()
    environment = {**LOG_IMPORTS, **variables}
    api = empty_stack.start_api(port, **environment)
    worker = empty_stack.start_worker("media", concurrency=1, **environment)
    _upload(empty_stack, api, port)
    assert (api.stop(), worker.stop()) == (0, 0)
    for running in (api, worker):
        assert "psycopg2" in running.log.read_text()
        assert (SDK_MODULE in running.log.read_text()) == is_loaded
        running.log.unlink()


@pytest.mark.tier("faults")
def test_hanging_telemetry_collector_delays_neither_callers_nor_shutdown(
    empty_stack: Stack, hanging_collector: Collector
) -> None:
    port = free_port()
    # The API calls in this test create more spans than OpenTelemetry's SDK can queue. The SDK waits
    # up to ten minutes for a response of the collector.
    queue_settings = {"OTEL_BSP_MAX_QUEUE_SIZE": "32", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
    environment = {
        **hanging_collector.environment,
        **queue_settings,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
    }
    api = empty_stack.start_api(port, **environment)
    worker = empty_stack.start_worker("media", concurrency=1, **environment)
    _upload(empty_stack, api, port)
    eventually(lambda: hanging_collector.calls, what="a call that hangs")
    with plain_client(base_url=f"http://{LOOPBACK}:{port}") as client:
        headers = {"Authorization": f"Bearer {empty_stack.create_owner().key}"}
        for _ in range(200):
            assert client.get("/lists", headers=headers).status_code == 200
    _upload(empty_stack, api, port)
    # The processes stop although the telemetry collector never responds. By default,
    # OpenTelemetry's SDK would delay the stop until the telemetry collector responds.
    assert (api.stop(), worker.stop()) == (0, 0)
    assert hanging_collector.bodies == []


@pytest.mark.tier("processes")
def test_invalid_telemetry_setting_is_logged_and_the_process_starts(empty_stack: Stack) -> None:
    port = free_port()
    invalid_variables = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1]:9",
    }
    api = empty_stack.start_api(port, **invalid_variables)
    with plain_client(base_url=f"http://{LOOPBACK}:{port}") as client:
        assert client.get("/healthz").status_code == 200
    assert api.stop() == 0
    assert "telemetry.off" in api.log.read_text()
