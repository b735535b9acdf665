"""The client, with a method for every operation and methods that wait for jobs."""

from collections.abc import Callable, Iterator

from pressroom_client import jobs
from pressroom_client.calls import Accepted
from pressroom_client.generated import types
from pressroom_client.generated.operations import Operations


class Pressroom(Operations):
    """A client of a Pressroom API for one caller.

    ``Pressroom("https://press.example.com", "prk_…")`` calls the API with an API key. Each method
    has the name of an operation in the OpenAPI document. Close the client after use, or use the
    client in a ``with`` block.
    """

    def watch_job(
        self, job: "int | Accepted | types.JobRecord", *, timeout: float | None = None
    ) -> Iterator[types.JobRecord]:
        """Yield the job after each change, until the job ends.

        The method reconnects after a lost connection. Raises ``TimeoutError`` if the job hasn't
        ended after about ``timeout`` seconds.
        """
        return jobs.watch_job(self, _job_id(job), timeout=timeout)

    def wait_for_job(
        self,
        job: "int | Accepted | types.JobRecord",
        *,
        on_progress: Callable[[types.JobRecord], object] | None = None,
        timeout: float | None = None,
    ) -> types.JobRecord:
        """Wait until a job succeeds, and return the job.

        Raises ``JobFailed`` if the job fails or is cancelled. Raises ``TimeoutError`` if the job
        hasn't ended after about ``timeout`` seconds. The job continues even if the method raises
        ``TimeoutError``.

        Args:
            on_progress: a function that is called with the job after each change.
        """
        return jobs.wait_for_job(self, _job_id(job), on_progress=on_progress, timeout=timeout)


def _job_id(job: "int | Accepted | types.JobRecord") -> int:
    if isinstance(job, int):
        return job
    return job.job_id if isinstance(job, Accepted) else job["id"]
