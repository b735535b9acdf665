"""run.json: what a running stack tells scripts."""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from devstack.supervisor.home.home_folder import Home


class S3Login(BaseModel):
    endpoint: str
    access_key: str
    secret_key: str
    bucket: str


class DemoLogin(BaseModel):
    email: str
    password: str
    api_key: str
    user_id: int
    list_id: int
    list_slug: str


class Run(BaseModel):
    """A running stack. Written once all is ready, again when a pid changes, removed at the stop."""

    api_url: str
    flower_url: str
    flower_user: str
    flower_password: str
    sandbox_url: str
    mailbox_url: str
    status_url: str
    database_url: str
    # As the owner of the tables.
    migration_database_url: str
    redis_url: str
    s3: S3Login
    demo: DemoLogin
    metrics_token: str
    # What the stack's programs have, for commands that are started beside them.
    settings: dict[str, str]
    pids: dict[str, int]
    home: Path

    @property
    def sample_photo(self) -> Path:
        return Home(self.home).sample_photo


def read(home: Home) -> Run | None:
    """The run that the file describes; None without a file, or with the file of another release."""
    try:
        return Run.model_validate_json(home.run_file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
