import json
import re
import time
from pathlib import Path

import pytest

from tests.support.containers.engine import Engine, say
from tests.support.containers.images import WORKERS, build_ours, python_image
from tests.support.containers.size import WANTED_IN_FULL
from tests.support.deployment import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MEGABYTE = 1_000_000
# What no process needs to do its work.
CONFINED = ("--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
NO_NETWORK = ("--network", "none")


def _run(engine: Engine, image: str, *words: str) -> str:
    return engine.podman("run", *CONFINED, *NO_NETWORK, image, *words)


def test_image_runs_unprivileged_and_without_capabilities(engine: Engine, image: str) -> None:
    configuration = json.loads(engine.podman("image", "inspect", image))[0]["Config"]
    assert configuration["User"] == "10001:10001"
    status = _run(engine, image, "cat", "/proc/self/status")
    found = dict(line.split(":", 1) for line in status.splitlines())
    assert found["Uid"].split() == ["10001"] * 4
    assert int(found["CapEff"], 16) == 0
    assert int(found["NoNewPrivs"]) == 1
    began = time.monotonic()
    assert "migrate" in _run(engine, image, "pressroom", "--help")
    say(f"pressroom --help in a new container: {time.monotonic() - began:.1f} s")


def test_image_has_compiled_packages_and_no_build_tools(engine: Engine, image: str) -> None:
    script = (
        "import importlib.util as u, pathlib, api\n"
        "there = [n for n in ('pip', 'setuptools', 'devstack', 'tests') if u.find_spec(n)]\n"
        "folder = pathlib.Path(api.__file__).parent\n"
        "missing = [str(f) for f in folder.rglob('*.py')"
        " if not pathlib.Path(u.cache_from_source(str(f))).exists()]\n"
        "print(there, missing)"
    )
    assert _run(engine, image, "python", "-c", script).strip() == "[] []"


def test_image_exceeds_its_base_by_at_most_200_mb(engine: Engine, image: str) -> None:
    base, ours, workers = (_size(engine, each) for each in (python_image(), image, WORKERS))
    say(
        f"our image has {ours:.0f} MB, {ours - base:.0f} MB more than that of Python;"
        f" that of workers {workers:.0f} MB, {workers - ours:.0f} MB more than ours"
    )
    assert ours - base <= 200
    # Dictionaries: one of Japanese has 115 MB, and what guesses languages needs NumPy of 50 MB.
    assert workers - ours <= 200


def _size(engine: Engine, image: str) -> float:
    return int(engine.podman("image", "inspect", "--format", "{{.Size}}", image)) / MEGABYTE


def test_image_contains_the_sbom_and_every_installed_package_is_listed(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    made = files.made_sbom(tmp_path / "sbom.cdx.json").decode()
    for each in (image, WORKERS):
        assert _run(engine, each, "cat", "/opt/pressroom/sbom.cdx.json") == made
    bom = json.loads(made)
    components = [bom["metadata"]["component"], *bom["components"]]
    named = {_normalised(f"{it['name']} {it['version']}") for it in components}
    script = (
        "from importlib.metadata import distributions as d; [print(e.name, e.version) for e in d()]"
    )
    installed = set(map(_normalised, _run(engine, WORKERS, "python", "-c", script).splitlines()))
    assert len(installed) > 100
    assert installed <= named


def _normalised(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def test_image_supports_reader_languages_and_localized_dates(engine: Engine, image: str) -> None:
    script = (
        "from babel import Locale\n"
        "from core.languages.reader_languages import list_languages\n"
        "from services.subscriptions.imports.dates import parse_date\n"
        "parse_date('31 de diciembre de 2025')\n"
        "print(*(Locale.parse(each, sep='-').get_display_name('en') for each in list_languages()))"
    )
    assert "German" in _run(engine, image, "python", "-c", script)


@WANTED_IN_FULL
def test_image_build_is_reproducible(engine: Engine, image: str) -> None:
    # The workers' has all layers of the API's, and one more.
    again = build_ours(engine, "pressroom:again", "--no-cache", target="worker")
    # Podman notes its own ids in the history; what is run are the layers and the configuration.
    what_counts = "{{.RootFS.Layers}} {{json .Config}}"
    built = {
        engine.podman("image", "inspect", "--format", what_counts, each)
        for each in (WORKERS, again)
    }
    say(f"built twice: {'the same layers' if len(built) == 1 else 'not the same'}")
    assert len(built) == 1
