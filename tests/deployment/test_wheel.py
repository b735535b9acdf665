"""Tests that the wheel with its extras works outside the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devstack.harness.free_ports import free_port
from tests.support.documents.markdown import ROOT

pytestmark = [pytest.mark.tier("processes"), pytest.mark.stack]

Command = Callable[..., str]

UV = Path(sys.executable).with_name("uv")
IGNORED_FILES = shutil.ignore_patterns(".*", "build", "*.egg-info", "node_modules", "docs", "tests")
POST = {
    "title": "Autumn in the garden",
    "content": "<p>We plant bulbs for the spring. Roses need a cut before the first frost.</p>",
}


@pytest.fixture(scope="module")
def pressroom(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A function that runs the command `pressroom` of the installed wheel in an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    environment = folder / "environment"
    work = folder / "work"
    # setuptools writes into the source folder, so the test builds the wheel from a copy.
    shutil.copytree(ROOT, source, ignore=IGNORED_FILES)
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    _run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(source))
    [wheel] = folder.glob("*.whl")
    _run(str(UV), "venv", "--quiet", "--python", sys.executable, str(environment))
    _run(
        *(str(UV), "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")),
        *("--constraints", str(ROOT / "requirements-devstack.txt")),
        f"pressroom[devstack,languages] @ {wheel.as_uri()}",
    )
    work.mkdir()
    variables = {
        "PATH": os.defpath,
        "COLUMNS": "200",
        "PRESSROOM_HOME": str(folder / "home"),
        "PORT": str(free_port()),
        "FLOWER_PORT": str(free_port()),
    }

    def run_command(*words: str, **more_variables: str) -> str:
        program = str(environment / "bin" / "pressroom")
        return _run(program, *words, cwd=work, env={**variables, **more_variables})

    return run_command


@pytest.fixture(scope="module")
def installed_stack(pressroom: Command) -> Iterator[dict[str, Any]]:
    """The content of `run.json` of a stack that runs from the installed wheel."""
    try:
        run: dict[str, Any] = json.loads(pressroom("up", "--detach", "--json"))
        yield run
    finally:
        stopped = json.loads(pressroom("down", "--json"))
    assert stopped["was_running"] is True


def test_installed_wheel_converts_an_image_imports_a_file_and_writes_metadata(
    installed_stack: dict[str, Any],
) -> None:
    demo = installed_stack["demo"]
    photo = Path(installed_stack["home"], "sample.jpg").read_bytes()
    headers = {"X-API-Key": demo["api_key"], "Prefer": "wait=30"}
    with httpx2.Client(
        base_url=installed_stack["api_url"], headers=headers, timeout=60.0
    ) as client:
        upload = client.post("/attachments", files={"file": ("sample.jpg", photo)})
        assert upload.json()["data"]["mime_type"] == "image/webp"
        file = {"file": ("readers.csv", b"email\nreader@example.com\n")}
        job = client.post(f"/lists/{demo['list_id']}/imports", files=file).json()["data"]
        assert job["status"] == "succeeded"
        members = client.get(f"/lists/{demo['list_id']}/subscriptions").json()["data"]["items"]
        assert len(members) == 1
        assert client.post("/composer/metadata", json=POST).status_code == 200


def test_installed_wheel_serves_the_console_with_its_static_files(
    installed_stack: dict[str, Any],
) -> None:
    demo = installed_stack["demo"]
    with httpx2.Client(
        base_url=installed_stack["api_url"], follow_redirects=True, timeout=30.0
    ) as client:
        login_page = client.get("/console")
        assert login_page.url.path == "/login"
        assert "<style>" in login_page.text
        tokens = dict(
            re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', login_page.text)
        )
        login = {**tokens, "email": demo["email"], "password": demo["password"]}
        console = client.post("/login", data=login, headers={"Origin": installed_stack["api_url"]})
        assert console.url.path.startswith("/console")
        files = re.findall(r'(?:script src|stylesheet" href)="([^"]+)"', console.text)
        assert len(files) >= 2
        for url in files:
            assert client.get(url).status_code == 200


def test_installed_stack_links_only_to_documentation_with_a_configured_url(
    installed_stack: dict[str, Any],
    pressroom: Command,
) -> None:
    assert "guides" not in pressroom("up", "--detach")
    status_page = httpx2.get(installed_stack["status_url"], timeout=30.0).text
    assert "documentation" not in status_page
    url = "https://docs.example.com/pressroom/"
    assert url in pressroom("up", "--detach", PRESSROOM_DOCS_URL=url)


def _run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    completed = subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd, env=env)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout
