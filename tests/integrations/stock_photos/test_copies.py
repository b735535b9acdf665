"""Tests from which URL a stock photo is copied, and how large the photo may be."""

from collections.abc import Iterator

import pytest

from core.errors import DomainError
from core.upload_limits import MAX_IMAGE_BYTES
from integrations.stock_photos.openverse import Openverse
from integrations.stock_photos.port import Photo
from tests.support.http.servers import QuietHandler, http_server, running_server

PHOTO = Photo("7c829a03-fb24-4b57-9b03-65f43ed19395")


class PhotoServer:
    """A stand-in for Openverse that sends a photo of ``size`` bytes."""

    def __init__(self) -> None:
        self.size = 100
        self.paths: list[str] = []
        photos = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                photos.paths.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"x" * photos.size)

        self.server = http_server(Handler)
        self.adapter = Openverse(f"http://127.0.0.1:{self.server.server_port}", lambda *_: None)


@pytest.fixture
def photo_server() -> Iterator[PhotoServer]:
    photos = PhotoServer()
    with running_server(photos.server):
        yield photos


def test_openverse_copy_is_downloaded_in_full_size_from_openverse_itself(
    photo_server: PhotoServer,
) -> None:
    assert photo_server.adapter.download_copy(PHOTO) == b"x" * 100
    path = f"/v1/images/{PHOTO.id}/thumb/?full_size=true&compressed=true"
    assert photo_server.paths == [path]


def test_photo_larger_than_an_upload_is_refused(photo_server: PhotoServer) -> None:
    photo_server.size = MAX_IMAGE_BYTES
    assert len(photo_server.adapter.download_copy(PHOTO)) == MAX_IMAGE_BYTES
    photo_server.size += 1
    with pytest.raises(DomainError) as error:
        photo_server.adapter.download_copy(PHOTO)
    assert error.value.code == "attachment.too_large"
