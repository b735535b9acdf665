from pathlib import Path

import pytest

from devstack.harness.stack import Owner, Stack
from devstack.supervisor.prepare import DEMO_EMAIL, DEMO_LIST_SLUG
from models import Plan
from services.accounts import accounts
from tests.support.clients.building import build_python
from tests.support.http.replies import data


@pytest.fixture(scope="session")
def demo(stack: Stack) -> Owner:
    """The demo account and its list, which `pressroom up` creates for a reader."""
    with stack.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=DEMO_EMAIL, name="Demo Owner").id
        accounts.set_plan(uow, email=DEMO_EMAIL, plan=Plan.PAID)
    owner = Owner(user_id, DEMO_EMAIL, stack.create_key(user_id))
    with stack.client(owner.key) as client:
        data(client.post("/lists", json={"title": "The Daily Demo", "slug": DEMO_LIST_SLUG}))
    return owner


@pytest.fixture(scope="session")
def client_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_python(tmp_path_factory.mktemp("client")) / "src"
