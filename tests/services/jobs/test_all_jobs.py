from devstack.harness.stack import Stack
from models import JobStatus
from services.jobs import records
from services.paging import PageRequest

_INSERT_FINISHED_JOBS = (
    "INSERT INTO jobs (kind, queue, status, finished_at)"
    " SELECT 'attachment.process', 'media',"
    " CASE WHEN n %% 4 = 0 THEN 'failed' ELSE 'cancelled' END, now()"
    " FROM generate_series(1, 20) AS n"
)


def test_job_list_pages_with_limited_scans_return_all_matching_jobs(stack: Stack) -> None:
    stack.query(_INSERT_FINISHED_JOBS)
    rows = stack.query("SELECT id FROM jobs WHERE status = 'failed' ORDER BY id DESC")
    # If a scan reads up to 50 jobs, it finds more failed jobs than fit on a page. If a scan reads
    # up to three jobs, it may find no failed job, because only every fourth job has failed.
    for max_scanned in (3, 50):
        job_ids: list[int] = []
        cursor = None
        sizes: list[int] = []
        while cursor is not None or not sizes:
            with stack.resources.unit_of_work() as uow:
                page = records.list_all_jobs(
                    uow,
                    PageRequest(2, cursor=cursor),
                    status=JobStatus.FAILED,
                    max_scanned=max_scanned,
                )
                job_ids += [job.id for job in page.rows]
            cursor = page.next_cursor
            sizes.append(len(page.rows))
        assert job_ids == [number for (number,) in rows]
        if max_scanned == 3:
            # The last page is empty if the scan before it ended exactly at the oldest job.
            assert 0 in sizes[:-1]
        else:
            assert max(sizes) == 2
