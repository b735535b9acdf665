"""Flower: a page for operators that shows every worker and task."""

from core.logging import configure_logging
from core.settings import Settings, SettingsError
from workers.app import build_app


def run(settings: Settings, host: str, port: int) -> None:
    """Serve Flower until told to stop. It never runs without a password."""
    if settings.flower_password is None:
        raise SettingsError("PRESSROOM_FLOWER_PASSWORD: Flower does not start without a password")
    login = f"{settings.flower_user}:{settings.flower_password.get_secret_value()}"
    configure_logging(settings)
    # Imported here: Flower reads the command line's options as soon as it is imported.
    from flower.command import flower

    app = build_app(settings)
    flower.main(
        args=[
            f"--address={host}",
            f"--port={port}",
            f"--basic-auth={login}",
            "--max-tasks=10000",
            "--tasks-columns=name,uuid,state,args,kwargs,received,started,runtime,worker",
        ],
        obj=app,
        standalone_mode=False,
    )
