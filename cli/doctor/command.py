"""`pressroom doctor`: does everything work that this deployment needs?"""

import logging
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from cli.connection import use_running_stack
from cli.doctor.database_checks import DATABASE
from cli.doctor.diagnoses import CheckState, Diagnosis
from cli.doctor.examination import MAX_EXAMINATION_SECONDS, examine
from cli.doctor.machine_checks import MACHINE
from cli.doctor.mail_checks import mail_part
from cli.doctor.provider_checks import PROVIDERS
from cli.doctor.public_checks import PUBLIC_URL
from cli.doctor.redis_checks import BROKER, REDIS
from cli.doctor.storage_checks import OBJECT_STORAGE
from cli.output import Json, show_all
from core.errors import SettingsError
from core.logging import configure_logging
from core.settings import load_settings

FAULTY = 1
_MARKS = {CheckState.FINE: "✓", CheckState.WRONG: "✗", CheckState.SKIPPED: "–"}

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    send: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Send a mail to this address, too.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=25, help="For how long answers are waited for.")
    ] = MAX_EXAMINATION_SECONDS,
    as_json: Json = False,
) -> None:
    """Check everything that this deployment needs. With faults, the exit code is 1.

    It asks the database, Redis, the broker, the object storage, the mail server, the public URL and
    providers, all at the same time, and ends within half a minute whatever hangs. It sees what its
    own process was handed: ask where mail is sent from about mail.
    """
    use_running_stack()
    found = _examined(send, seconds)
    rows = [asdict(each) if as_json else _row(each) for each in found]
    show_all(rows, as_json=as_json)
    is_faulty = any(each.state is CheckState.WRONG for each in found)
    sys.stdout.flush()
    # At once: a thread that hangs in a call would hold up the end.
    os._exit(FAULTY if is_faulty else 0)


def _examined(send: str | None, seconds: float) -> list[Diagnosis]:
    try:
        settings = load_settings()
    except SettingsError as error:
        advice = "Set it as docs/operations.md says."
        return [
            Diagnosis("settings", name, CheckState.WRONG, rule, advice)
            for name, _, rule in (line.partition(": ") for line in str(error).splitlines())
        ]
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    # What is wrong is told once, by us, and not by each library's second try.
    logging.disable(logging.WARNING)
    parts = [DATABASE, REDIS, BROKER, OBJECT_STORAGE, mail_part(send), PUBLIC_URL, PROVIDERS]
    return examine([*parts, MACHINE], settings, seconds=seconds)


def _row(diagnosis: Diagnosis) -> dict[str, str]:
    return {
        "": _MARKS[diagnosis.state],
        "part": diagnosis.part,
        "check": diagnosis.check,
        "found": diagnosis.found,
        "what to do": diagnosis.advice,
    }
