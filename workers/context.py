"""What a worker process holds: connections and a converter, made after any fork, once."""

import os
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from core.lanes import Lane
from core.settings import load_settings
from integrations.llm.registry import language_model
from integrations.mail import registry
from integrations.mail.port import Mailer
from integrations.payments.registry import PaymentChannels
from integrations.stock_photos.registry import StockPhotoProviders
from services.composer import model_usage
from services.composer.metadata_requests import MetadataCache
from services.composer.photos import CachedStockPhotos, note_quotas
from services.media.images import ConverterProcess
from storage.resources import Resources, open_resources

if TYPE_CHECKING:
    from services.composer.writers import MetadataWriter

IO_THREADS = 16
# A job's own work and its heartbeat.
_CONNECTIONS_PER_JOB = 2

_lanes: list[Lane] = []


def set_lane(lane: Lane) -> None:
    """Say which lane this process and those it forks work for."""
    _lanes[:] = [lane]


def lane() -> Lane:
    return _lanes[0]


def resources() -> Resources:
    return _resources_of(os.getpid())


def converter() -> ConverterProcess:
    return _converter_of(os.getpid())


@lru_cache(maxsize=1)
def mailer() -> Mailer:
    # It holds no connection, so it may cross a fork.
    return registry.mailer(load_settings())


def writing() -> "MetadataWriter":
    return _writing_of(os.getpid())


def photos() -> CachedStockPhotos:
    return _photos_of(os.getpid())


@lru_cache(maxsize=1)
def _writing_of(_pid: int) -> "MetadataWriter":
    given = resources()
    # The writers' libraries take seconds and memory, which the other lanes' workers are spared.
    from services.composer.writers import MetadataWriter

    shelf = MetadataCache(given.settings, given.keyring, given.cache)
    llm = language_model(given.settings, partial(model_usage.note, given.redis))
    return MetadataWriter(given.settings, shelf, llm)


@lru_cache(maxsize=1)
def _photos_of(_pid: int) -> CachedStockPhotos:
    given = resources()
    providers = StockPhotoProviders(given.settings, partial(note_quotas, given.redis))
    return CachedStockPhotos(providers, given.keyring, given.cache)


@lru_cache(maxsize=1)
def payments() -> PaymentChannels:
    return PaymentChannels(load_settings())


@lru_cache(maxsize=1)
def _resources_of(_pid: int) -> Resources:
    jobs_at_once = IO_THREADS if lane() is Lane.IO else 1
    return open_resources(
        load_settings(),
        concurrency=jobs_at_once * _CONNECTIONS_PER_JOB,
        name=f"worker-{lane()}",
    )


@lru_cache(maxsize=1)
def _converter_of(_pid: int) -> ConverterProcess:
    return ConverterProcess()
