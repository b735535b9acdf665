import hashlib
import io

import httpx
from PIL import Image

from tests.pictures import photo


def test_uploaded_photo_comes_back_as_webp_of_the_same_size_and_checksum(
    client: httpx.Client,
) -> None:
    reply = client.post("/attachments", files={"file": ("Holiday.JPG", photo())})
    assert reply.status_code == 200, reply.text
    record = reply.json()["data"]
    assert record["status"] == 2
    stored = httpx.get(record["view_url"])
    assert stored.headers["content-type"] == record["mime_type"] == "image/webp"
    assert len(stored.content) == record["size"]
    assert hashlib.sha256(stored.content).hexdigest() == record["checksum"]
    assert Image.open(io.BytesIO(stored.content)).size == (640, 480)
