import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.harness.embedded_services import embedded_services
from devstack.supervisor.embedded import postgres
from devstack.supervisor.home_folder import StackError
from tests.support.prerequisites import pass_over
from tests.support.stack.open_checkout import ORDINARY_ID, Checkout
from tests.support.stack.ordinary_user import OrdinaryUser

MAKEFILE = Path(__file__).parents[3] / "Makefile"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder of root's below /tmp, which no other user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


def test_devstack_finds_the_topmost_folder_that_a_user_cannot_enter(closed_folder: Path) -> None:
    below = closed_folder / "open" / "closed too"
    below.mkdir(parents=True)
    below.chmod(0o700)
    assert postgres.find_closed_folder(below, ORDINARY_ID, ORDINARY_ID) == closed_folder
    closed_folder.chmod(0o711)
    assert postgres.find_closed_folder(below, ORDINARY_ID, ORDINARY_ID) == below
    shutil.chown(below, ORDINARY_ID)
    assert postgres.find_closed_folder(below, ORDINARY_ID, ORDINARY_ID) is None
    shutil.chown(below, 0, ORDINARY_ID)
    assert postgres.find_closed_folder(below, ORDINARY_ID, ORDINARY_ID) == below
    below.chmod(0o710)
    assert postgres.find_closed_folder(below, ORDINARY_ID, ORDINARY_ID) is None


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
        pass_over("the Makefile needs make")
    here = closed_folder / "pressroom"
    here.mkdir()
    here.chmod(0o755)
    shutil.copyfile(MAKEFILE, here / "Makefile")
    refused = ordinary_user.run_in(here, "make", target)
    assert refused.returncode == 2
    assert f"User nobody cannot enter {closed_folder}," in refused.stdout
    assert str(here) in refused.stdout
