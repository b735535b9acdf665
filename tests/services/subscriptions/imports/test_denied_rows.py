from dataclasses import replace

import pytest

from core.ids import random_hash_id
from devstack.harness.stack import Owner
from services.subscriptions import deny_lists
from services.subscriptions.imports.chunks import chunks
from tests.support.imports.importing import ImportRunner
from tests.support.people.quotas import leave_room_for_members


def deny_entries(importing: ImportRunner, owner: Owner, *entries: str) -> None:
    with importing.resources.unit_of_work() as uow:
        deny_lists.change_entries(uow, owner.account_id, add=entries, remove=[])


def test_operator_deny_list_applies_to_every_import(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    settings_update = {"deny_list": ("example.org", "ben@example.net")}
    settings = importing.resources.settings.model_copy(update=settings_update)
    resources = replace(importing.resources, settings=settings)
    importing_with_deny_list = ImportRunner(replace(importing.stack, resources=resources))
    file = b"email\nada@example.org\nben@example.net\neve@example.com\n"
    task = importing_with_deny_list.import_members(importer, list_id, file)
    assert (task.received, task.added, task.denied) == (3, 1, 2)
    # The deny list also applies to imports by the operator's own command.
    task = importing_with_deny_list.import_members(importer, list_id, file, by_operator=True)
    assert (task.received, task.already, task.denied) == (3, 1, 2)


@pytest.mark.parametrize("on_existing", ["skip", "update"])
def test_deny_list_is_checked_in_every_import_chunk_but_keeps_existing_members(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    monkeypatch: pytest.MonkeyPatch,
    on_existing: str,
) -> None:
    tag = random_hash_id()
    addresses = [f"n{number}.{tag}@example.net" for number in range(40)]
    importing.import_members(importer, list_id, "\n".join(["email", *addresses[:5]]).encode())
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 10)
    deny_entries(importing, importer, *addresses[::4], "*.example.org")
    rows = [f"{each},New" for each in addresses]
    file = "\n".join(["email,name", *rows, "x@a.example.org,New"]).encode()
    task = importing.import_members(importer, list_id, file, on_existing=on_existing)
    # Denied: every fourth address except the first and fifth, which are members, and the subdomain.
    assert (task.received, task.added, task.already, task.denied) == (41, 27, 5, 9)
    assert task.updated == (5 if on_existing == "update" else 0)
    assert len(importing.active(list_id)) == importing.count(list_id) == 32


def test_denied_rows_do_not_count_toward_the_plan_quota(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    leave_room_for_members(importing.stack, importing.new_list(importer), 2)
    deny_entries(importing, importer, "example.org")
    file = b"email\na@example.org\nb@example.org\nc@example.net\nd@example.net\n"
    task = importing.import_members(importer, list_id, file)
    assert (task.status, task.added, task.denied, task.over_quota) == ("succeeded", 2, 2, 0)
