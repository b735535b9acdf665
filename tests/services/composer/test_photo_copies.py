"""Tests of copying a stock photo if a worker crashes or all callers disconnect."""

from dataclasses import dataclass
from typing import Any, cast

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from integrations.stock_photos.port import Photo, PhotoProviderName
from services.composer.photos import CachedStockPhotos, PhotoCopy
from storage.redis.request_work import AllCallersLeft
from tests.support.http.replies import data

JPEG = b"\xff\xd8\xff\xe0 a photo"


@dataclass
class Provider:
    """A fake stock photo provider, which always returns the same photo."""

    def get_provider(self, _: PhotoProviderName) -> "Provider":
        return self

    def download_copy(self, _: Photo) -> bytes:
        return JPEG


@dataclass
class Lease:
    """A fake of the lease with which a worker reserves a request to copy a photo.

    ``patience``: the number of calls to ``seconds_left`` after which all callers have disconnected.
    """

    request_id: str
    patience: int = 10

    def seconds_left(self) -> float:
        self.patience -= 1
        if self.patience < 0:
            raise AllCallersLeft
        return 10.0


@pytest.fixture
def photos() -> CachedStockPhotos:
    return CachedStockPhotos(cast(Any, Provider()), cast(Any, None), cast(Any, None))


def copy_photo(photos: CachedStockPhotos, stack: Stack, owner: Owner, lease: Lease) -> int:
    copy = PhotoCopy(PhotoProviderName.OPENVERSE, Photo("a"), owner.account_id)
    return photos.copy(copy, cast(Any, lease), stack.resources).subject_id


def test_photo_is_copied_once_even_if_a_second_worker_repeats_the_request(
    photos: CachedStockPhotos, stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    first = copy_photo(photos, stack, owner, Lease("photos:1"))
    assert copy_photo(photos, stack, owner, Lease("photos:1")) == first
    assert len(data(client.get("/attachments"))["items"]) <= 1
    assert copy_photo(photos, stack, owner, Lease("photos:2")) != first


def test_photo_is_not_stored_if_all_callers_left_during_the_download(
    photos: CachedStockPhotos, stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    with pytest.raises(AllCallersLeft):
        copy_photo(photos, stack, owner, Lease("photos:3", patience=1))
    assert data(client.get("/attachments"))["items"] == []
