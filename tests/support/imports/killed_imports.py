"""Builds files whose import results are known, and checks that an import has these results."""

from dataclasses import dataclass, field

from core.ids import random_hash_id
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from models import MemberImport
from tests.support.imports.importing import ImportRunner, counts_of, csv_of

# The number of rows between a row of a subscribed person and a later opt-out of the same person.
OPT_OUT_ROW_DISTANCE = 11_000


def start_import_worker(importing: ImportRunner) -> Running:
    return importing.stack.start_worker("bulk", concurrency=1)


@dataclass
class SentFile:
    """The rows of a file, and the expected results of its import.

    Attributes:
        codes: maps the line of each row that isn't added to its error code.
        members: the addresses of the list's active members after the import.
    """

    rows: list[list[str]] = field(default_factory=list)
    codes: dict[int, str] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)

    def file(self) -> bytes:
        return csv_of(self.rows, ("email", "name", "status"))

    def counts(self) -> dict[str, int]:
        codes = list(self.codes.values())
        return {
            "received": len(self.rows),
            "added": len(self.rows) - len(codes),
            "already": codes.count("member.already"),
            "opted_out": codes.count("member.opted_out") + codes.count("member.left"),
            "invalid": codes.count("email.invalid"),
            "duplicate": codes.count("row.duplicate"),
            "denied": 0,
            "updated": 0,
        }


def prepare_import(importing: ImportRunner, list_id: int, rows: int) -> SentFile:
    """Build a file with ``rows`` rows, and add some of the people in the file to the list."""
    tag = random_hash_id(8)
    sent = SentFile()
    known = [f"known{n}.{tag}@example.com" for n in range(200)]
    left = [f"left{n}.{tag}@example.com" for n in range(200)]
    _enroll(importing, list_id, known, left)
    sent.members = set(known)
    for n in range(rows):
        address, code, status = f"m{n}.{tag}@example.com", None, "subscribed"
        match n % 100:
            case 7:
                address, code = f"nobody{n}", "email.invalid"
            case 13:
                address, code = f"M{n - 1}.{tag}@EXAMPLE.com", "row.duplicate"
            case 21 if n // 100 < len(known):
                address, code = known[n // 100], "member.already"
            case 42 if n // 100 < len(left):
                address, code = left[n // 100], "member.opted_out"
            case 77 if OPT_OUT_ROW_DISTANCE < n <= 2 * OPT_OUT_ROW_DISTANCE:
                # An earlier row of the file subscribes the address that this row marks as bounced.
                address, code, status = (
                    f"m{n - OPT_OUT_ROW_DISTANCE}.{tag}@example.com",
                    "member.left",
                    "bounced",
                )
                sent.members.discard(address)
                sent.codes[n - OPT_OUT_ROW_DISTANCE + 2] = "row.duplicate"
        sent.rows.append([address, f"Name {n}", status])
        if code is None:
            sent.members.add(address)
        else:
            sent.codes[n + 2] = code
    return sent


def _enroll(importing: ImportRunner, list_id: int, known: list[str], left: list[str]) -> None:
    owner_of = "SELECT user_id FROM lists WHERE id = %s"
    [(user_id,)] = importing.stack.query(owner_of, list_id)
    owner = Owner(int(str(user_id)), "", "")
    importing.import_members(owner, list_id, csv_of([[each, ""] for each in known]))
    unsubscribed = csv_of([[each, "unsubscribed"] for each in left], ("email", "status"))
    importing.import_members(owner, list_id, unsubscribed)


def require_exact(
    importing: ImportRunner, list_id: int, task: MemberImport, sent: SentFile
) -> None:
    assert counts_of(task) == sent.counts()
    left = [sent.rows[line - 2][0] for line, code in sent.codes.items() if code == "member.left"]
    assert importing.active(list_id).isdisjoint(left)
    rows = importing.stack.query(
        "SELECT email, status, user_id FROM subscriptions WHERE list_id = %s", list_id
    )
    addresses = [str(email) for email, _, _ in rows]
    assert len(addresses) == len(set(addresses)) == len({user_id for _, _, user_id in rows})
    assert importing.active(list_id) == set(addresses) == sent.members
    assert importing.count(list_id) == len(sent.members)
    rejected = sorted(importing.not_added(task.id), key=lambda cells: int(cells[-3]))
    assert [(int(line), code) for *_, line, code, _ in rejected] == sorted(sent.codes.items())
    assert [cells[:3] for cells in rejected] == [sent.rows[line - 2] for line in sorted(sent.codes)]
    chunks = importing.stack.query(
        "SELECT count(*), count(DISTINCT number), max(number) + 1 FROM import_chunks"
        " WHERE import_id = %s",
        task.id,
    )
    assert chunks == [(task.chunks, task.chunks, task.chunks)]
    # The import has deleted its temporary files from object storage.
    assert not importing.stack.stored(f"{task.object_prefix}/")


def await_success(importing: ImportRunner, job_id: int, *, within: float = 90.0) -> MemberImport:
    job = importing.ended(job_id, within=within)
    assert job.status == "succeeded", (job.status, job.error)
    assert job.result is not None
    task = importing.of_job(job_id)
    assert {name: job.result[name] for name in counts_of(task)} == counts_of(task)
    return task
