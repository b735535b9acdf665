"""The client: every operation, and waiting for the jobs that some of them begin."""

from collections.abc import Callable, Iterator

from pressroom_client import jobs
from pressroom_client.calls import Accepted
from pressroom_client.generated import types
from pressroom_client.generated.operations import Operations


class Pressroom(Operations):
    """A Pressroom API, as one caller sees it.

    ``Pressroom("https://press.example.com", "prk_…")`` calls it with an API key. Each method is an
    operation of the OpenAPI document under its own name. Close the client, or use it with ``with``.
    """

    def watch_job(
        self, job: "int | Accepted | types.JobRecord", *, timeout: float | None = None
    ) -> Iterator[types.JobRecord]:
        """The job at each change, until it has ended; a stream that breaks off is taken up again.

        Raises ``TimeoutError`` when it has not ended after about ``timeout`` seconds.
        """
        return jobs.watch(self, _id_of(job), timeout=timeout)

    def wait_for_job(
        self,
        job: "int | Accepted | types.JobRecord",
        *,
        on_progress: Callable[[types.JobRecord], object] | None = None,
        timeout: float | None = None,
    ) -> types.JobRecord:
        """The job once it has succeeded. ``on_progress`` is called at each change before.

        Raises ``JobFailed`` when it fails or is cancelled, and ``TimeoutError`` when it has not
        ended after about ``timeout`` seconds; it goes on then.
        """
        return jobs.wait(self, _id_of(job), on_progress=on_progress, timeout=timeout)


def _id_of(job: "int | Accepted | types.JobRecord") -> int:
    if isinstance(job, int):
        return job
    return job.job_id if isinstance(job, Accepted) else job["id"]
