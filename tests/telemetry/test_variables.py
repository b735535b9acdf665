import os

import pytest

from core.telemetry.collector import has_service_name, is_tracing_enabled

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _remove_telemetry_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the OpenTelemetry environment variables that the test process inherited."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variables", "is_enabled"),
    [
        ({}, False),
        ({ENDPOINT: " "}, False),
        ({ENDPOINT: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": ""}, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({ENDPOINT: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ],
)
def test_tracing_is_enabled_only_with_a_configured_collector(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, is_enabled: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_tracing_enabled() == is_enabled


def test_empty_telemetry_variable_is_treated_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://collector:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "")
    assert is_tracing_enabled()
    assert "OTEL_EXPORTER_OTLP_TIMEOUT" not in os.environ


@pytest.mark.parametrize(
    ("variables", "has_name"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "letters"}, True),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a, service.name=news"}, True),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a"}, False),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=service.name"}, False),
    ],
)
def test_service_name_is_recognized_in_both_telemetry_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, has_name: bool
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert has_service_name() == has_name
