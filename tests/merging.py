"""Two records of one person that become one, in the test's own process unless a worker is first."""

from core.errors import TransientError
from models import FINISHED, AccountMerge, Job, JobStatus, User
from services.jobs import lease as leases
from services.merging import merge_turns
from services.people import accounts
from services.people.account_merges import merge_requests
from storage.resources import Resources
from tests.sizes import FULL
from tests.stack import Stack, eventually


def agree(resources: Resources, user_id: int, email: str) -> int:
    """The person has proved both addresses; returns the merge."""
    with resources.unit_of_work() as uow:
        person = uow.session.get_one(User, user_id, with_for_update=True)
        merge_requests.ask(uow, person, email, request_id=None)
        asked = merge_requests.read(uow, user_id)
        left, person.email = person.email, merge_requests.agree(uow, person, asked)
        accounts.note_move(uow, person, left=left)
        return asked.id


def make_due(stack: Stack, merge_id: int) -> None:
    """Let the time pass in which the change of address can be undone."""
    stack.query(
        "UPDATE mailed_links SET expires_at = now() WHERE purpose = 'account.undo_address'"
        " AND user_id = (SELECT user_id FROM account_merges WHERE id = %s)",
        merge_id,
    )
    stack.query(
        "UPDATE jobs SET run_at = now(), send_after = now(), sends = 1"
        " WHERE kind = 'account.merge' AND subject_id = %s AND finished_at IS NULL",
        merge_id,
    )


def merge(stack: Stack, merge_id: int) -> Job:
    """Work on the merge until its job has ended."""
    make_due(stack, merge_id)
    return finish(stack.resources, job_of(stack.resources, merge_id))


def job_of(resources: Resources, merge_id: int) -> int:
    with resources.unit_of_work() as uow:
        job_id = uow.session.get_one(AccountMerge, merge_id).job_id
    assert job_id is not None
    return job_id


def finish(resources: Resources, job_id: int) -> Job:
    def ended() -> Job | None:
        take_turn(resources, job_id)
        with resources.unit_of_work() as uow:
            job = uow.session.get_one(Job, job_id)
        return job if job.status in FINISHED else None

    job = eventually(ended, within=3000 if FULL else 60, what="the end of the merge")
    assert isinstance(job, Job)
    assert job.status == JobStatus.SUCCEEDED, job.error
    return job


def take_turn(resources: Resources, job_id: int) -> None:
    """As a worker does; what failed for a reason that passes is tried again at once."""
    with resources.unit_of_work() as uow:
        lease = leases.claim(uow, job_id)
    if lease is None:
        return
    try:
        merge_turns.run(resources, lease)
    except TransientError:
        with resources.unit_of_work() as uow:
            leases.hand_back(uow, lease)
