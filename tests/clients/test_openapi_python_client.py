"""Tests that openapi-python-client generates a client from the OpenAPI document."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients.building import run_program, write_document
from tests.support.documents import markdown
from tests.support.prerequisites import skip_or_fail

pytestmark = pytest.mark.tier("clients")

# The generator has its own environment, because it requires an older Typer than Pressroom.
GENERATOR_REQUIREMENT = "openapi-python-client==0.29.1"
# By default, uv makes four attempts, each with a timeout of 30 seconds.
UV_LIMITS = {"UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "1"}
CLIENTS_PAGE = markdown.ROOT / "docs" / "clients.md"
IMPORT_EVERY_MODULE = """
import importlib, pkgutil, client
for module in pkgutil.walk_packages(client.__path__, "client."):
    importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a virtual environment with the generator.

    Without a package registry, the test is skipped. If ``CI`` is set, the test fails instead.
    """
    folder = tmp_path_factory.mktemp("generator") / "environment"
    uv = (sys.executable, "-m", "uv")
    run_program(*uv, "venv", "--python", sys.executable, str(folder), folder=folder.parent)
    try:
        subprocess.run(
            (*uv, "pip", "install", "--python", folder, GENERATOR_REQUIREMENT),
            check=True,
            env={**os.environ, **UV_LIMITS},
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"uv cannot install {GENERATOR_REQUIREMENT}: {' '.join(error.stderr.split())}")
    return folder


def test_openapi_python_client_reads_the_document_without_a_warning(
    environment: Path, tmp_path: Path
) -> None:
    document = write_document(tmp_path)
    [configuration] = [
        block.text for block in markdown.blocks(CLIENTS_PAGE) if block.language == "yaml"
    ]
    (tmp_path / "config.yaml").write_text(configuration)
    completed = subprocess.run(
        (
            *(environment / "bin" / "openapi-python-client", "generate", "--meta", "none"),
            *("--path", document, "--config", "config.yaml", "--output-path", "client"),
        ),
        check=False,
        cwd=tmp_path,
        # The generator formats the client with the Ruff in its own environment.
        env={**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    # The generator writes warnings to the error stream.
    assert completed.stderr == ""
    assert completed.returncode == 0, completed.stdout
    run_program(str(environment / "bin" / "python"), "-c", IMPORT_EVERY_MODULE, folder=tmp_path)
