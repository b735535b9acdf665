"""A person changes their e-mail address, and a job writes the new address into all their lists."""

import pytest

from core.ids import random_hash_id
from services.accounts import accounts
from services.jobs.lease import LeaseLost
from services.jobs.transitions import hand_back_job
from services.subscriptions import member_addresses
from tests.support.imports.importing import Importing, csv_of


def test_address_update_resumes_where_its_worker_died(
    importing: Importing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_addresses, "MAX_BATCH_LISTS", 1)
    owner, tag = importing.stack.create_owner(), random_hash_id()
    before, after = f"a.{tag}@example.com", f"b.{tag}@example.com"
    list_ids = sorted(importing.new_list(owner) for _ in range(3))
    for each in list_ids:
        importing.bring(owner, each, csv_of([[before, ""]]))
    with importing.resources.unit_of_work() as uow:
        person = accounts.get_user_by_email(uow, before)
        person.email = after
        accounts.record_address_change(uow, person, old_address=before, is_visible=True)
        member_addresses.schedule_address_update(uow, person.id)
    job = "kind = 'account.show_address' AND subject_id = %s"
    [(job_id,)] = importing.stack.query(f"SELECT id FROM jobs WHERE {job}", person.id)
    importing.stack.query(f"UPDATE jobs SET run_at = now() WHERE {job}", person.id)
    assert isinstance(job_id, int)
    died = importing.lease(job_id)
    with importing.resources.unit_of_work() as uow:
        assert member_addresses._update_batch(uow, died, person.id, 0) == list_ids[0]
    assert [importing.active(each) for each in list_ids] == [{after}, {before}, {before}]
    with importing.resources.unit_of_work() as uow:
        hand_back_job(uow, died)
    monkeypatch.undo()
    lease = importing.lease(job_id)
    with pytest.raises(LeaseLost), importing.resources.unit_of_work() as uow:
        member_addresses._update_batch(uow, died, person.id, 0)
    member_addresses.run_address_update(importing.resources, lease)
    assert [importing.active(each) for each in list_ids] == [{after}] * 3
    assert importing.job(job_id).status == "succeeded"
