import json
import re
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

from tests.support.repository.tracked_files import OURS

ROOT = Path(__file__).parents[1]


def test_no_dependency_installs_a_top_level_package_of_ours() -> None:
    # Our own distribution is installed editable and may be listed; nobody else's may.
    shipped = packages_distributions()
    for name in OURS:
        assert set(shipped.get(name, [])) <= {"pressroom"}


@pytest.mark.parametrize("file", sorted(path.name for path in ROOT.glob("requirements*.txt")))
def test_every_requirement_is_pinned_and_hashed_without_index_url(file: str) -> None:
    text = (ROOT / file).read_text()
    entries = re.split(
        r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^(\s*#|-r requirements).*\n", "", text).strip()
    )
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


def test_pyproject_npm_package_and_changelog_have_the_same_version() -> None:
    """`make clients` brings that of pyproject.toml into the npm package."""
    package, lock = (
        json.loads((ROOT / "clients" / "typescript" / file).read_text())
        for file in ("package.json", "package-lock.json")
    )
    found = {package["version"], lock["version"], lock["packages"][""]["version"]}
    assert found == {version("pressroom")}
    assert f"\n## [{version('pressroom')}] - " in (ROOT / "CHANGELOG.md").read_text()
