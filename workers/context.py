"""The state of a worker process: connections, a converter, clients of providers."""

import os
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from core.lanes import Lane
from core.settings import Settings
from core.telemetry import spans
from integrations.llm.registry import language_model
from integrations.mail import registry
from integrations.payments.registry import PaymentChannels
from integrations.receivers.posting import ReceiverClient
from integrations.stock_photos.registry import StockPhotoProviders
from services.composer import model_usage
from services.composer.metadata_requests import MetadataCache
from services.composer.photos import CachedStockPhotos, note_quotas
from services.media.isolation.converter import ConverterProcess
from storage.redis.request_leases import RequestLeases
from storage.redis.request_work import RequestWork
from storage.resources import open_resources
from workers.queues.serving import Pool, Serving
from workers.running.held_work import HeldWork

if TYPE_CHECKING:
    from services.composer.writers import MetadataWriter


# Lanes of request-only work alone, none of which asks the database.
_WITHOUT_JOBS = {Lane.REQUEST, Lane.PHOTOS}


class WorkerContext:
    """One for a process, shared by its threads. Nothing connects or starts before its first use."""

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.settings = settings
        self.serves = serves
        self.resources = open_resources(
            settings, concurrency=connections(serves), name=f"worker-{'-'.join(serves.limits)}"
        )
        self.resources.make_all()
        self.converter = ConverterProcess()
        self.mailer = registry.mailer(settings)
        self.payments = PaymentChannels(settings)
        self.receivers = ReceiverClient(settings.webhook_networks)
        self.photos = CachedStockPhotos(
            StockPhotoProviders(settings, partial(note_quotas, self.resources.redis)),
            self.resources.keyring,
            self.resources.cache,
        )
        self.request_work = RequestWork(self.resources.redis)
        self.request_leases = RequestLeases()
        self.held = HeldWork()
        self._lock = Lock()
        self._writer: MetadataWriter | None = None

    def writer(self) -> "MetadataWriter":
        with self._lock:
            if self._writer is None:
                # Imported here, since the writers' libraries take seconds and memory that workers
                # of other lanes don't need.
                from services.composer.writers import MetadataWriter

                resources = self.resources
                cache = MetadataCache(self.settings, resources.keyring, resources.cache)
                llm = language_model(self.settings, partial(model_usage.note, resources.redis))
                self._writer = MetadataWriter(self.settings, cache, llm)
            return self._writer


def connections(serves: Serving) -> int:
    """The most that a process has to the database: each job's work and its heartbeat have one.

    A process of a pool has another, for members of one request that are added two chunks at a time.
    """
    if serves.pool is Pool.PREFORK:
        return 3
    jobs = sum(limit for lane, limit in serves.limits.items() if lane not in _WITHOUT_JOBS)
    return max(2 * jobs, 1)


class ProcessContext:
    """Gives each process its own context, made at the first use and so after any fork."""

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.serves = serves
        self.settings = settings
        self._lock = Lock()
        self._pid = 0
        self._context: WorkerContext | None = None

    @property
    def threads(self) -> bool:
        return self.serves.pool is Pool.THREADS

    def get(self) -> WorkerContext:
        with self._lock:
            if self._context is None or self._pid != os.getpid():
                spans.begin(f"pressroom-worker-{'-'.join(self.serves.limits)}")
                self._context = WorkerContext(self.settings, self.serves)
                self._pid = os.getpid()
            return self._context
