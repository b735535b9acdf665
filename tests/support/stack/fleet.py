"""A shared API process and a shared media worker for tests that cause faults."""

from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.probe.bench import PROBE_WORKER
from tests.support.stack.signals import resume_process


class Fleet:
    """One API process and one media worker, which several tests share.

    If a test kills a shared process, the next test that needs the process starts it again.
    ``recover`` kills all processes that a test started, except the shared ones.
    """

    def __init__(self, stack: Stack, redis: Proxy, postgres: Proxy) -> None:
        self._stack = stack
        self._redis = redis
        self._postgres = postgres
        self._shared: dict[str, Running] = {}

    def start_api(self) -> Running:
        return self._living("api") or self._share(
            "api", self._stack.start_api(None, **self.proxied())
        )

    def start_media(self) -> Running:
        # The media worker must know the kind of probe jobs, because every worker sweeps all jobs.
        return self._living("media") or self._share(
            "media", self._stack.start_worker("media", concurrency=2, module=PROBE_WORKER)
        )

    def end(self) -> None:
        """Kill the shared API process and media worker, for a test that starts other processes."""
        for running in self._shared.values():
            running.kill()
            self._stack.processes.remove(running)
        self._shared.clear()

    def proxied(self) -> dict[str, str]:
        return {
            "PRESSROOM_REDIS_URL": self._redis.url,
            "PRESSROOM_DATABASE_URL": self._postgres.url,
        }

    def recover(self) -> None:
        for running in tuple(self._stack.processes):
            resume_process(running)
            if running not in self._shared.values():
                running.kill()
                self._stack.processes.remove(running)
        for proxy in (self._redis, self._postgres):
            proxy.resume()
            proxy.cut()
        self._stack.query(
            "TRUNCATE jobs, idempotency_records, attachments, probe_plans, probe_starts,"
            " probe_effects CASCADE"
        )
        self._stack.resources.redis.flushdb()

    def _living(self, name: str) -> Running | None:
        running = self._shared.get(name)
        return running if running and running.process.poll() is None else None

    def _share(self, name: str, running: Running) -> Running:
        self._shared[name] = running
        return running
