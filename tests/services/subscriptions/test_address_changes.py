"""Tests of the job that writes a person's new e-mail address into all lists of the person."""

import pytest

from core.ids import random_hash_id
from services.accounts import accounts
from services.jobs.lease import LeaseLost
from services.jobs.transitions import hand_back_job
from services.subscriptions import member_addresses
from tests.support.imports.importing import ImportRunner, csv_of


def test_address_update_resumes_where_its_worker_died(
    importing: ImportRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_addresses, "MAX_BATCH_LISTS", 1)
    owner = importing.stack.create_owner()
    tag = random_hash_id()
    old_address = f"a.{tag}@example.com"
    new_address = f"b.{tag}@example.com"
    list_ids = sorted(importing.new_list(owner) for _ in range(3))
    for list_id in list_ids:
        importing.import_members(owner, list_id, csv_of([[old_address, ""]]))
    with importing.resources.unit_of_work() as uow:
        person = accounts.get_user_by_email(uow, old_address)
        person.email = new_address
        accounts.record_address_change(uow, person, old_address=old_address, is_visible=True)
        member_addresses.schedule_address_update(uow, person.id)
    job_condition = "kind = 'account.show_address' AND subject_id = %s"
    [(job_id,)] = importing.stack.query(f"SELECT id FROM jobs WHERE {job_condition}", person.id)
    importing.stack.query(f"UPDATE jobs SET run_at = now() WHERE {job_condition}", person.id)
    assert isinstance(job_id, int)
    lost_lease = importing.lease(job_id)
    with importing.resources.unit_of_work() as uow:
        assert member_addresses._update_batch(uow, lost_lease, person.id, 0) == list_ids[0]
    assert [importing.active(list_id) for list_id in list_ids] == [
        {new_address},
        {old_address},
        {old_address},
    ]
    with importing.resources.unit_of_work() as uow:
        hand_back_job(uow, lost_lease)
    monkeypatch.undo()
    lease = importing.lease(job_id)
    with pytest.raises(LeaseLost), importing.resources.unit_of_work() as uow:
        member_addresses._update_batch(uow, lost_lease, person.id, 0)
    member_addresses.run_address_update(importing.resources, lease)
    assert [importing.active(list_id) for list_id in list_ids] == [{new_address}] * 3
    assert importing.job(job_id).status == "succeeded"
