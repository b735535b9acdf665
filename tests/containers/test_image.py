"""Tests the contents of Pressroom's container images."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.support.containers.engine import Engine, print_line
from tests.support.containers.images import WORKER_IMAGE, build_our_image, python_image
from tests.support.containers.size import FULL_SIZE_ONLY
from tests.support.deployment import files

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000
# Podman options that restrict the rights of a container. All processes of the image must work
# despite these restrictions.
RESTRICTIONS = ("--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
NO_NETWORK = ("--network", "none")


def _run(engine: Engine, image: str, *words: str) -> str:
    return engine.podman("run", *RESTRICTIONS, *NO_NETWORK, image, *words)


def test_image_runs_unprivileged_and_without_capabilities(engine: Engine, image: str) -> None:
    configuration = json.loads(engine.podman("image", "inspect", image))[0]["Config"]
    assert configuration["User"] == "10001:10001"
    status = _run(engine, image, "cat", "/proc/self/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert fields["Uid"].split() == ["10001"] * 4
    assert int(fields["CapEff"], 16) == 0
    assert int(fields["NoNewPrivs"]) == 1
    began_at = time.monotonic()
    assert "migrate" in _run(engine, image, "pressroom", "--help")
    print_line(f"pressroom --help in a new container: {time.monotonic() - began_at:.1f} s")


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
    base_mb, image_mb, workers_mb = (
        _size_mb(engine, each) for each in (python_image(), image, WORKER_IMAGE)
    )
    print_line(
        f"the API's image has {image_mb:.0f} MB, {image_mb - base_mb:.0f} MB more than the Python"
        f" image; the workers' image has {workers_mb:.0f} MB, {workers_mb - image_mb:.0f} MB more"
        " than the API's image"
    )
    assert image_mb - base_mb <= 200
    # The workers' image also has a Japanese dictionary (115 MB), and NumPy (50 MB) for the
    # detection of languages.
    assert workers_mb - image_mb <= 200


def _size_mb(engine: Engine, image: str) -> float:
    return int(engine.podman("image", "inspect", "--format", "{{.Size}}", image)) / MEGABYTE


def test_image_contains_the_sbom_and_every_installed_package_is_listed(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    expected_sbom = files.create_sbom(tmp_path / "sbom.cdx.json").decode()
    for each in (image, WORKER_IMAGE):
        assert _run(engine, each, "cat", "/opt/pressroom/sbom.cdx.json") == expected_sbom
    bom = json.loads(expected_sbom)
    components = [bom["metadata"]["component"], *bom["components"]]
    listed = {
        _normalised(f"{component['name']} {component['version']}") for component in components
    }
    script = (
        "from importlib.metadata import distributions as d; [print(e.name, e.version) for e in d()]"
    )
    installed = set(
        map(_normalised, _run(engine, WORKER_IMAGE, "python", "-c", script).splitlines())
    )
    assert len(installed) > 100
    assert installed <= listed


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


@FULL_SIZE_ONLY
def test_image_build_is_reproducible(engine: Engine, image: str) -> None:
    # The workers' image has all layers of the API's image, and one more.
    second_image = build_our_image(engine, "pressroom:again", "--no-cache", target="worker")
    # Compare only the layers and the configuration of the images, because an image's history
    # contains ids that Podman generates.
    template = "{{.RootFS.Layers}} {{json .Config}}"
    contents = {
        engine.podman("image", "inspect", "--format", template, each)
        for each in (WORKER_IMAGE, second_image)
    }
    print_line(f"built twice: {'the same layers' if len(contents) == 1 else 'not the same'}")
    assert len(contents) == 1
