"""The folder of a reader who runs the examples in the documents while `make run` is running."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from devstack.harness.stack import Stack
from devstack.supervisor.home_folder import DemoLogin, Home, Lock, Run, S3Login
from tests.support.images.pictures import photo


@contextmanager
def reader_folder(folder: Path, stack: Stack, api_key: str) -> Iterator[Path]:
    """Write the files of a running stack into ``folder``, and pretend to be its supervisor."""
    home = Home(folder / ".pressroom")
    home.create()
    (folder / ".venv").symlink_to(sys.prefix)
    # Without the option ``fail-with-body``, curl exits with 0 after an error response.
    (folder / ".curlrc").write_text("fail-with-body\n")
    home.sample_photo.write_bytes(photo())
    urls = dict.fromkeys(
        ("flower_url", "flower_user", "flower_password", "redis_url", "metrics_token"), ""
    )
    run = Run(
        api_url=stack.api_url,
        sandbox_url=stack.sandbox_url,
        mailbox_url=f"{stack.sandbox_url}/mail",
        status_url=f"{stack.sandbox_url}/status",
        database_url=stack.environment["PRESSROOM_DATABASE_URL"],
        migration_database_url=stack.owner_url,
        s3=S3Login(endpoint="", access_key="", secret_key="", bucket=""),
        demo=DemoLogin(email="", password="", api_key=api_key, user_id=0, list_id=0, list_slug=""),
        settings={"PRESSROOM_MAIL_URL": stack.environment["PRESSROOM_MAIL_URL"]},
        pids={},
        home=home.path,
        **urls,
    )
    home.run_file.write_text(run.model_dump_json())
    lock = Lock(home.supervisor_lock)
    assert lock.acquire()
    with closing(lock):
        lock.write_text(str(os.getpid()))
        yield folder
