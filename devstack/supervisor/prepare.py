"""What must be there before the first request: tables, bucket, demo data and a sample photo.

The supervisor runs this as a process of its own, so that its memory is given back.
"""

import sys

from core.errors import DomainError
from core.logging import configure_logging
from core.settings import SettingsError, load_settings
from devstack.sandbox.stock_photos.pictures import draw
from devstack.supervisor.home import demo, home_folder, secrets_file
from storage.migrations.run import migrate
from storage.resources import open_resources

# 12 megapixels, as a phone takes them.
_SAMPLE_PHOTO_PIXELS = (4000, 3000)


def main() -> int:
    place = home_folder.from_environment()
    if not place.sample_photo.exists():
        unfinished = place.sample_photo.with_suffix(".part")
        unfinished.write_bytes(draw("sample", *_SAMPLE_PHOTO_PIXELS))
        unfinished.replace(place.sample_photo)
    settings = load_settings()
    configure_logging(settings)
    migrate(settings)
    resources = open_resources(settings, concurrency=2, name="prepare")
    try:
        demo.ensure(place, resources, secrets_file.load_or_create(place).demo_password)
        resources.objects.make_bucket()
    finally:
        resources.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SettingsError as error:
        sys.exit(f"Settings are missing or wrong:\n{error}")
    except DomainError as error:
        sys.exit(f"{error}\n`pressroom reset` makes the home anew, without what is in it.")
