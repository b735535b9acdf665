from devstack.harness.stack import Stack
from models import JobStatus
from services.jobs import records
from services.paging import PageRequest

_FAILED = (
    "INSERT INTO jobs (kind, queue, status, finished_at)"
    " SELECT 'attachment.process', 'media',"
    " CASE WHEN n %% 4 = 0 THEN 'failed' ELSE 'cancelled' END, now()"
    " FROM generate_series(1, 20) AS n"
)


def test_job_list_pages_with_limited_scans_return_all_matching_jobs(stack: Stack) -> None:
    stack.query(_FAILED)
    rows = stack.query("SELECT id FROM jobs WHERE status = 'failed' ORDER BY id DESC")
    # More than a page's worth, or none, in some of the looks.
    for look_at in (3, 50):
        seen: list[int] = []
        cursor, looks = None, 0
        while cursor is not None or looks == 0:
            with stack.resources.unit_of_work() as uow:
                page = records.list_all_jobs(
                    uow, PageRequest(2, cursor=cursor), status=JobStatus.FAILED, max_scanned=look_at
                )
                seen += [job.id for job in page.rows]
            cursor, looks = page.next_cursor, looks + 1
        assert seen == [number for (number,) in rows]
        assert looks > len(seen) // 2
