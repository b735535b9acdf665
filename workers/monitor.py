"""Flower: a page for operators that shows every worker and task."""

from core.logging import configure_logging
from core.settings import SettingsError
from core.settings.store_settings import FlowerSettings
from storage.broker import celery_app


def run(settings: FlowerSettings, host: str, port: int) -> None:
    """Serve Flower until told to stop. It never runs without a password."""
    password = settings.flower_password and settings.flower_password.get_secret_value()
    if not password:
        raise SettingsError("PRESSROOM_FLOWER_PASSWORD: Flower does not start without a password")
    login = f"{settings.flower_user}:{password}"
    configure_logging(settings)
    celery_app(settings).start(
        [
            "flower",
            f"--address={host}",
            f"--port={port}",
            f"--basic-auth={login}",
            "--tasks-columns=name,uuid,state,args,kwargs,received,started,runtime,worker",
        ]
    )
