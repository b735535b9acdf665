import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.harness.embedded_services import embedded_services
from devstack.supervisor.embedded import postgres
from devstack.supervisor.home_folder import StackError
from tests.support.prerequisites import skip_or_fail
from tests.support.stack.open_checkout import ORDINARY_ID, Checkout
from tests.support.stack.ordinary_user import OrdinaryUser

MAKEFILE = Path(__file__).parents[3] / "Makefile"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder below /tmp that only root can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


def test_devstack_finds_the_topmost_folder_that_a_user_cannot_enter(closed_folder: Path) -> None:
    subfolder = closed_folder / "open" / "closed too"
    subfolder.mkdir(parents=True)
    subfolder.chmod(0o700)
    assert postgres.find_closed_folder(subfolder, ORDINARY_ID, ORDINARY_ID) == closed_folder
    closed_folder.chmod(0o711)
    assert postgres.find_closed_folder(subfolder, ORDINARY_ID, ORDINARY_ID) == subfolder
    shutil.chown(subfolder, ORDINARY_ID)
    assert postgres.find_closed_folder(subfolder, ORDINARY_ID, ORDINARY_ID) is None
    shutil.chown(subfolder, 0, ORDINARY_ID)
    assert postgres.find_closed_folder(subfolder, ORDINARY_ID, ORDINARY_ID) == subfolder
    subfolder.chmod(0o710)
    assert postgres.find_closed_folder(subfolder, ORDINARY_ID, ORDINARY_ID) is None


def test_start_as_root_names_the_folder_that_user_nobody_cannot_enter(
    closed_folder: Path, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.syspath_prepend(checkout.packages)
    home = closed_folder / "home"
    with pytest.raises(
        StackError, match=f"user nobody, who cannot enter {closed_folder} "
    ) as caught:
        embedded_services(home).__enter__()
    assert str(home) in str(caught.value)
    assert not (home / "postgres").exists()


@pytest.mark.parametrize("target", ["run", "check"])
def test_make_reports_the_folder_that_user_nobody_cannot_enter(
    closed_folder: Path, ordinary_user: OrdinaryUser, target: str
) -> None:
    if shutil.which("make") is None:
        skip_or_fail("the Makefile needs make")
    project_folder = closed_folder / "pressroom"
    project_folder.mkdir()
    project_folder.chmod(0o755)
    shutil.copyfile(MAKEFILE, project_folder / "Makefile")
    completed = ordinary_user.run_in(project_folder, "make", target)
    assert completed.returncode == 2
    assert f"User nobody cannot enter {closed_folder}," in completed.stdout
    assert str(project_folder) in completed.stdout
