"""What must be there before the first request: tables, bucket, demo data and a sample photo.

The supervisor runs this as a process of its own, so that its imports happen while the services
start, and its memory is given back.
"""

import sys
import time
from collections.abc import Callable

from sqlalchemy.exc import OperationalError

from core.errors import TransientError
from core.settings import SettingsError, load_settings
from devstack.sandbox.stock_photos.pictures import draw
from devstack.supervisor.home import demo, home_folder, secrets_file
from storage.migrations.run import migrate
from storage.resources import open_resources

_MAX_WAIT_SECONDS = 60.0
# 12 megapixels, as a phone takes them.
_SAMPLE_PHOTO_PIXELS = (4000, 3000)


def main() -> int:
    place = home_folder.from_environment()
    if not place.sample_photo.exists():
        unfinished = place.sample_photo.with_suffix(".part")
        unfinished.write_bytes(draw("sample", *_SAMPLE_PHOTO_PIXELS))
        unfinished.replace(place.sample_photo)
    resources = open_resources(load_settings(), concurrency=2, name="prepare")
    try:
        _retry(lambda: migrate(resources.database.engine))
        demo.ensure(place, resources, secrets_file.load_or_create(place).demo_password)
        _retry(resources.objects.make_bucket)
    finally:
        resources.close()
    return 0


def _retry(action: Callable[[], object]) -> None:
    """Try again while a service is still starting; raise its last error after a minute."""
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        try:
            action()
        except (OperationalError, TransientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SettingsError as error:
        sys.exit(f"Settings are missing or wrong:\n{error}")
