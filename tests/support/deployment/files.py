"""Reads the files of the deployment, such as the Compose file and the Dockerfile."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cli.environment_file import read_setting_descriptions
from core.settings import Settings
from core.settings.given_settings import FILE_SUFFIX, PREFIX, is_secret, variable_of

ROOT = Path(__file__).parents[3]
COMPOSE_FILE = ROOT / "docker-compose.yml"
ENV_EXAMPLE = ROOT / ".env.example"
SECRETS_SCRIPT = ROOT / "deploy" / "compose" / "secrets.sh"
# The folder in which each container finds the secrets of its service.
SECRETS_FOLDER = "/run/secrets"
DOCKERFILE = ROOT / "Dockerfile"
RELEASE_SCRIPT = ROOT / ".ci" / "release"

Service = dict[str, Any]

VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)(?:(:?[?-])([^}]*))?\}")


@cache
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return document


def services() -> dict[str, Service]:
    """Return the services that `docker compose up` starts."""
    all_services: dict[str, Service] = compose()["services"]
    return {name: each for name, each in all_services.items() if "profiles" not in each}


def observability_services() -> dict[str, Service]:
    all_services: dict[str, Service] = compose()["services"]
    return {
        name: each
        for name, each in all_services.items()
        if "observability" in each.get("profiles", [])
    }


def our_services() -> dict[str, Service]:
    return {name: each for name, each in services().items() if "build" in each}


def workers() -> dict[str, Service]:
    return {name: each for name, each in our_services().items() if each["command"][1] == "worker"}


def secrets() -> dict[str, str]:
    return {
        variable_of(name) + FILE_SUFFIX: name
        for name, field in Settings.model_fields.items()
        if is_secret(field)
    }


def setting_names() -> dict[str, str]:
    """Map the environment variable of each setting to the description of the setting."""
    return {variable_of(name): text for name, text in read_setting_descriptions().items()}


def required_names() -> set[str]:
    return {
        PREFIX + name.upper()
        for name, field in Settings.model_fields.items()
        if field.is_required()
    }


@dataclass(frozen=True)
class Entry:
    comments: list[str]
    value: str


@cache
def env_example() -> dict[str, Entry]:
    """Map each variable of .env.example to its value and the comment lines directly above it."""
    entries: dict[str, Entry] = {}
    comments: list[str] = []
    for line in ENV_EXAMPLE.read_text().splitlines():
        if line.startswith("#"):
            comments.append(line.removeprefix("#").strip())
            continue
        if line:
            name, _, value = line.partition("=")
            assert name not in entries, f"{name} is there twice"
            entries[name] = Entry(comments, value)
        comments = []
    return entries


def create_secrets(folder: Path, environment: str = "") -> Path:
    """Run the script that creates secrets, for a checkout in this folder with this .env file."""
    script = folder / SECRETS_SCRIPT.relative_to(ROOT)
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(SECRETS_SCRIPT.read_text())
    (folder / ".env").write_text(environment)
    subprocess.run(["sh", str(script)], check=True, capture_output=True)
    return folder / "secrets"


def create_sbom(place: Path) -> bytes:
    """Return the list of packages that `make sbom` and the build of the image write."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", "deploy/image/sbom.sh", str(place)]
    environment = {**os.environ, "PATH": path}
    subprocess.run(words, check=True, cwd=ROOT, env=environment, capture_output=True)
    return place.read_bytes()


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str


@cache
def dockerfile() -> list[Instruction]:
    """Return the instructions of the Dockerfile, each with its continuation lines."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    instructions = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), text) for name, text in instructions]
