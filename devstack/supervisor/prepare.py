"""What must be there before the first request: tables, bucket, demo data and a sample photo.

Run by the supervisor as a process of its own (`python -m devstack.prepare`), so that its imports
happen while the services start, and its memory is given back.
"""

import os
import sys
import time
from collections.abc import Callable

from sqlalchemy.exc import OperationalError

from core.errors import TransientError
from core.settings import SettingsError, load_settings
from devstack.supervisor.home import demo, home, sample_photo, schema_fingerprint, secrets_file
from storage.migrations.run import migrate
from storage.resources import open_resources

_PATIENCE = 60.0


def main() -> int:
    place = home.from_environment()
    sample_photo.make(place.sample_photo)
    resources = open_resources(load_settings(), concurrency=2, name="prepare")
    try:
        _persist(lambda: migrate(resources.database.engine))
        schema_fingerprint.remember(place, os.environ[schema_fingerprint.DATABASE_NAME_VARIABLE])
        password = secrets_file.load_or_create(place).demo_password
        demo.ensure(place, resources, password)
        _persist(resources.objects.make_bucket)
    finally:
        resources.close()
    return 0


def _persist(action: Callable[[], object]) -> None:
    """Try again while a service is still starting; its last complaint is raised in the end."""
    deadline = time.monotonic() + _PATIENCE
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
    except SettingsError as wrong:
        sys.exit(f"Settings are missing or wrong:\n{wrong}")
