"""Runs imports without HTTP: enqueues the jobs, runs them as a worker does, and reads results."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from core.errors import DomainError, TransientError
from core.ids import random_hash_id
from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import FINISHED, Job, MailingList, MemberImport, User
from services.access.caller import Caller
from services.jobs.kinds import JobWork
from services.jobs.lease import Lease
from services.jobs.transitions import claim_job, fail_job, hand_back_job
from services.subscriptions import lists, subscriber_counts
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.imports import accepting, helper, import_job, records
from services.subscriptions.imports.chunks import rejected_rows, verdicts
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo import IMPORT_UNDO
from services.subscriptions.members import members, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

Rows = list[tuple[object, ...]]
_RUNS: dict[str, JobWork] = {
    IMPORT_UNDO.job_name: IMPORT_UNDO.run,
    actions.CHANGE_MEMBERS.name: actions.change_members,
    BULK_UNDO.job_name: BULK_UNDO.run,
}
_MAX_TURNS = 1000


@dataclass(frozen=True)
class ImportRunner:
    """Imports files into the lists of a stack, in the test's own process."""

    stack: Stack

    @property
    def resources(self) -> Resources:
        return self.stack.resources

    def new_list(self, owner: Owner) -> int:
        with self.resources.unit_of_work() as uow:
            return lists.create_list(
                uow,
                account_id=owner.account_id,
                title="A list",
                slug=random_hash_id(),
                fields={"confirm_required": False},
            ).id

    def begin(
        self,
        owner: Owner,
        list_id: int,
        file: bytes,
        *,
        name: str = "members.csv",
        by_operator: bool = False,
        **options: Any,
    ) -> int:
        stored_file = accepting.create_file(self.resources)
        stored_file.writer.write(file)
        stored_file.writer.close()
        return accepting.accept_file(
            self.resources,
            owner.account_id,
            list_id,
            file=stored_file,
            filename=name,
            options=ImportOptions(**options),
            by_operator=by_operator,
        ).job_id

    def caller(self, owner: Owner) -> Caller:
        return Caller(
            owner.account_id, owner.person_id, frozenset(Scope), unrestricted=True, key_id=0
        )

    def begin_undo(self, owner: Owner, import_id: int) -> int:
        with self.resources.unit_of_work() as uow:
            job_id = records.undo_import(uow, self.caller(owner), import_id)
        assert job_id is not None
        return job_id

    def is_undone(self, owner: Owner, import_id: int) -> bool:
        with self.resources.unit_of_work() as uow:
            return records.undo_import(uow, self.caller(owner), import_id) is None

    @contextmanager
    def person(self, list_id: int, address: str) -> Iterator[tuple[UnitOfWork, MailingList, User]]:
        """Begin a transaction. Yield the transaction, the list, and the person with the address."""
        with self.resources.unit_of_work() as uow:
            person = uow.session.query(User).where(User.email == address).one()
            yield uow, lists.get_list(uow, list_id), person

    def remove(self, list_id: int, address: str) -> None:
        with self.person(list_id, address) as (uow, mailing_list, person):
            owner = Actor(ActorKind.OWNER, Via.LOGIN)
            members.remove_member(uow, mailing_list, person.id, owner)

    def claim(self, job_id: int) -> Lease | None:
        with self.resources.unit_of_work() as uow:
            return claim_job(uow, job_id)

    def lease(self, job_id: int) -> Lease:
        lease = self.claim(job_id)
        assert lease is not None
        return lease

    def work(self, job_id: int) -> Job:
        """Run the job in the test's process, as a worker does, until the job has ended."""
        job = self.job(job_id)
        run = _RUNS.get(job.kind, import_job.run_import)
        for _ in range(_MAX_TURNS):
            lease = self.claim(job_id)
            if lease is None:
                break
            self._run(run, lease)
        self.help(job_id)
        job = self.job(job_id)
        assert job.status in FINISHED
        return job

    def help(self, job_id: int) -> None:
        for _ in range(_MAX_TURNS):
            helper_ids = self.helpers(job_id)
            if not helper_ids:
                return
            for helper_id in helper_ids:
                lease = self.claim(helper_id)
                if lease is not None:
                    self._run(helper.run_helper, lease)

    def helpers(self, job_id: int) -> list[int]:
        rows = self.stack.query(
            "SELECT id FROM jobs WHERE kind = 'members.apply' AND subject_id = %s"
            " AND finished_at IS NULL ORDER BY id",
            job_id,
        )
        return [int(str(helper_id)) for (helper_id,) in rows]

    def apply_opt_out(self) -> None:
        """Run the jobs for people who opted out of a list while an import had locked the list."""
        while unfinished_jobs := self.stack.query(
            "SELECT id FROM jobs WHERE kind = 'opt_out.follow' AND finished_at IS NULL"
        ):
            for (job_id,) in unfinished_jobs:
                assert isinstance(job_id, int)
                lease = self.claim(job_id)
                if lease is not None:
                    self._run(unsubscribe.apply_opt_out, lease)

    def _run(self, run: JobWork, lease: Lease) -> None:
        try:
            for _ in run(self.resources, lease) or ():
                pass
        except DomainError as error:
            with self.resources.unit_of_work() as uow:
                fail_job(uow, lease, error)
        except TransientError:
            with self.resources.unit_of_work() as uow:
                hand_back_job(uow, lease)

    def import_members(
        self, owner: Owner, list_id: int, file: bytes, **options: Any
    ) -> MemberImport:
        job = self.work(self.begin(owner, list_id, file, **options))
        assert job.status == "succeeded", job.error
        return self.of_job(job.id)

    def undo(self, owner: Owner, import_id: int) -> dict[str, Any]:
        job = self.work(self.begin_undo(owner, import_id))
        assert job.status == "succeeded", job.error
        assert job.result is not None
        assert job.result["kept"] or self.is_undone(owner, import_id)
        return job.result

    def job(self, job_id: int) -> Job:
        with self.resources.unit_of_work() as uow:
            return uow.session.get_one(Job, job_id)

    def of_job(self, job_id: int) -> MemberImport:
        with self.resources.unit_of_work() as uow:
            subject = uow.session.get_one(Job, job_id).subject_id
            return uow.session.get_one(MemberImport, subject)

    def ended(self, job_id: int, *, within: float = 60.0) -> Job:
        eventually(
            lambda: self.job(job_id).status in FINISHED, within=within, what=f"job {job_id}'s end"
        )
        return self.job(job_id)

    def records(self, list_id: int) -> Rows:
        return self.stack.query(
            "SELECT * FROM subscriptions WHERE list_id = %s ORDER BY 1", list_id
        )

    def opt_outs(self, list_id: int) -> Rows:
        return self.stack.query(
            "SELECT id, list_id, user_id, encode(address_hmac, 'hex'), kind, source, created_at"
            " FROM opt_outs WHERE list_id = %s ORDER BY 1",
            list_id,
        )

    def active(self, list_id: int) -> set[str]:
        rows = self.stack.query(
            "SELECT email FROM subscriptions WHERE list_id = %s AND status = 'active'", list_id
        )
        return {str(email) for (email,) in rows}

    def count(self, list_id: int) -> int:
        with self.resources.unit_of_work() as uow:
            return subscriber_counts.count_subscribers(uow, [list_id])[list_id]

    def count_claims(self, import_id: int) -> int:
        query = "SELECT count(*) FROM consent_claims WHERE import_id = %s"
        [(count,)] = self.stack.query(query, import_id)
        return int(str(count))

    def import_new_owner(self, list_id: int) -> Owner:
        member = self.stack.create_owner()
        [(user_id,)] = self.stack.query("SELECT user_id FROM lists WHERE id = %s", list_id)
        list_owner = Owner(int(str(user_id)), "", "")
        assert self.import_members(list_owner, list_id, csv_of([[member.email, ""]])).added == 1
        return member

    def not_added(self, import_id: int) -> list[list[str]]:
        text = b"".join(rejected_rows.stream_rejected_rows(self.resources, import_id)).decode()
        return list(csv.reader(io.StringIO(text)))[1:]


def new_addresses(count: int) -> list[str]:
    """Return unused e-mail addresses, which are numbered from 00."""
    tag = random_hash_id()
    return [f"{number:02}.{tag}@example.com" for number in range(count)]


def csv_of(rows: Iterable[Sequence[str]], header: Sequence[str] = ("email", "name")) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def counts_of(task: MemberImport) -> dict[str, int]:
    return {name: getattr(task, name) for name in verdicts.COUNTS}
