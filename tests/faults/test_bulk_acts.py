"""Acts on many members while workers are killed: each member is changed once, and back once."""

import random
import time

from models import FINISHED, BulkAct, BulkAction, Job
from tests.contract.subscribers import fill
from tests.faults.bulk import worker
from tests.faults.conftest import kill_all
from tests.importing import Importing
from tests.services.mailing.bulk_acts.acts import Acts
from tests.sizes import sized
from tests.stack import Owner, eventually

MEMBERS = sized(60_000, 300_000)
KILLS = sized(2, 10)


def reached(importing: Importing, job_id: int) -> tuple[int | None, int | None]:
    """How far the act has come, and its undo."""
    with importing.resources.unit_of_work() as uow:
        subject = uow.session.get_one(Job, job_id).subject_id
        act = uow.session.get_one(BulkAct, subject)
        return act.reached_id, act.undo_reached_id


def work_and_kill(importing: Importing, job_id: int, dice: random.Random) -> Job:
    running = worker(importing)
    for _ in range(KILLS):
        before = reached(importing, job_id)

        def goes_on(before: tuple[int | None, int | None] = before) -> bool:
            is_over = importing.job(job_id).status in FINISHED
            return is_over or reached(importing, job_id) != before

        eventually(goes_on, within=60, what="a batch of the act")
        time.sleep(dice.uniform(0, 0.2))
        if importing.job(job_id).status in FINISHED:
            break
        kill_all(running)
        running = worker(importing)
    job = importing.ended(job_id, within=sized(60, 600))
    kill_all(running)
    return job


def test_each_member_is_changed_once_and_back_once_however_often_the_worker_is_killed(
    importing: Importing, importer: Owner
) -> None:
    dice = random.Random(20_261_122)
    acts = Acts(importing, importer, importing.new_list(importer))
    fill(importing.stack, acts.list_id, [f"{n}.{acts.list_id}@example.com" for n in range(MEMBERS)])
    before = acts.records()
    done = work_and_kill(importing, acts.begin(BulkAction.REMOVE), dice)
    assert done.result is not None
    bulk_id = done.result["bulk_id"]
    assert done.result == {"bulk_id": bulk_id, "matched": MEMBERS, "changed": MEMBERS}
    assert set(acts.statuses()) == {"removed"}
    assert changed(acts) == [("removed", MEMBERS, MEMBERS)]
    undone = work_and_kill(importing, acts.begin_undo(bulk_id), dice)
    assert undone.result == {"bulk_id": bulk_id, "undone": MEMBERS, "kept": 0}
    assert acts.records() == before
    assert changed(acts) == [("bulk_undone", MEMBERS, MEMBERS), ("removed", MEMBERS, MEMBERS)]


def changed(acts: Acts) -> list[tuple[object, ...]]:
    """The events by action, and of how many members they are."""
    return acts.stack.query(
        "SELECT action, count(*), count(DISTINCT user_id) FROM subscription_events"
        " WHERE list_id = %s GROUP BY action ORDER BY action",
        acts.list_id,
    )
