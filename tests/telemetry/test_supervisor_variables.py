from pathlib import Path

import pytest

from devstack.supervisor.environment import build_program_environment
from devstack.supervisor.home_folder import Home
from devstack.supervisor.programs import WORKERS, Ports, plan_programs

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def test_pressroom_up_passes_telemetry_settings_to_api_and_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_SAMPLER": "always_on"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ports = Ports(1, 2, 3, 4, dict.fromkeys(WORKERS, 5))
    programs = plan_programs(
        Home(tmp_path), build_program_environment({}), ports, creates_bucket=False
    )
    traced_programs = [each for each in programs if each.name in {"api", *WORKERS}]
    assert len(traced_programs) == 1 + len(WORKERS)
    for program in traced_programs:
        assert variables.items() <= program.environment.items(), program.name
