"""The clients, with a method for every operation and methods that wait for jobs."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from pressroom_client import async_jobs, jobs
from pressroom_client.calls import Accepted
from pressroom_client.generated import types
from pressroom_client.generated.async_operations import AsyncOperations
from pressroom_client.generated.operations import Operations


class Pressroom(Operations):
    """A client of a Pressroom API for one caller.

    ``Pressroom("https://press.example.com", "prk_…", strict=True)`` calls the API with an API key.
    Without a URL and a key, the client reads the environment variables ``PRESSROOM_URL`` and
    ``PRESSROOM_KEY``. With ``strict``, unknown parameters and fields raise an error. Methods are
    grouped by resource, such as ``lists.create``. Close the client after use, or use the client in
    a ``with`` block.
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


class AsyncPressroom(AsyncOperations):
    """An asynchronous client of a Pressroom API for one caller.

    ``AsyncPressroom`` has the arguments and methods of ``Pressroom``. Close the client with
    ``aclose`` after use, or use the client in an ``async with`` block.
    """

    def watch_job(
        self, job: "int | Accepted | types.JobRecord", *, timeout: float | None = None
    ) -> AsyncGenerator[types.JobRecord, None]:
        """Yield the job after each change, until the job ends.

        The method reconnects after a lost connection. Raises ``TimeoutError`` if the job hasn't
        ended after about ``timeout`` seconds.
        """
        return async_jobs.watch_job(self, _job_id(job), timeout=timeout)

    async def wait_for_job(
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
        async with aclosing(self.watch_job(job, timeout=timeout)) as records:
            async for record in records:
                if on_progress:
                    on_progress(record)
                if jobs.check_success(record):
                    return record
        raise AssertionError("a watched job ends")


def _job_id(job: "int | Accepted | types.JobRecord") -> int:
    if isinstance(job, int):
        return job
    return job.job_id if isinstance(job, Accepted) else job["id"]
