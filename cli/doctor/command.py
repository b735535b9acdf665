"""`pressroom doctor`: does everything work that this deployment needs?"""

import logging
import os
import sys
from functools import partial
from typing import Annotated

import typer

from cli.connection import use_running_stack
from cli.doctor import examination
from cli.doctor.examination import Ask, CheckState, Diagnosis
from cli.doctor.service_checks import ask_mail, ask_providers, ask_public_url
from cli.doctor.store_checks import ask_broker, ask_cache, ask_database, ask_storage
from cli.doctor.work_checks import ask_backup
from cli.output import Json, fields, show_all
from core.errors import SettingsError
from core.log_output import configure_logging
from core.settings import load_settings

FAULTY = 1
_MARKS = {CheckState.FINE: "✓", CheckState.WRONG: "✗", CheckState.SKIPPED: "–"}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    send: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Send a mail to this address, too.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=25, help="For how long answers are waited for.")
    ] = examination.MAX_EXAMINATION_SECONDS,
    as_json: Json = False,
) -> None:
    """Check everything that this deployment needs. With faults, the exit code is 1.

    It asks the database, Redis, the broker, the workers of each queue, the object storage, the mail
    server, the public URL and providers, all at the same time, and ends within half a minute
    whatever hangs. A process knows its own settings alone: run it where mail is sent to check mail.
    """
    use_running_stack()
    diagnoses = _examined(send, seconds)
    rows = [
        fields(each, "part check state found advice")
        if as_json
        else {"": _MARKS[each.state], **fields(each, "part check found"), "what to do": each.advice}
        for each in diagnoses
    ]
    show_all(rows, as_json=as_json)
    is_faulty = any(each.state is CheckState.WRONG for each in diagnoses)
    sys.stdout.flush()
    # At once: a thread that hangs in a call would hold up the end.
    os._exit(FAULTY if is_faulty else 0)


def _examined(send: str | None, seconds: float) -> list[Diagnosis]:
    try:
        settings = load_settings()
    except SettingsError as error:
        advice = "Set it as docs/install.md says."
        return [
            examination.wrong(name, rule, advice, "settings")
            for name, _, rule in (line.partition(": ") for line in str(error).splitlines())
        ]
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    # We tell of each fault once; the libraries would do so at each try.
    logging.disable(logging.WARNING)
    parts: dict[str, Ask] = {
        "database": ask_database,
        "redis": ask_cache,
        "broker": ask_broker,
        "object storage": ask_storage,
        "backup": ask_backup,
        "mail": partial(ask_mail, send),
        "public URL": ask_public_url,
        "providers": ask_providers,
    }
    return examination.examine(parts, settings, seconds=seconds)
