"""The command ``pressroom doctor``, which checks a deployment's settings and services."""

import logging
import os
import sys
from typing import Annotated

import typer

from cli.connection import use_running_stack
from cli.output import Json, print_records, select_fields
from core.errors import SettingsError
from core.log_output import configure_logging
from core.settings import load_settings
from services.doctor import all_checks, runner
from services.doctor.runner import CheckState, Diagnosis

FAULTY = 1
_MARKS = {
    CheckState.FINE: "✓",
    CheckState.WRONG: "✗",
    CheckState.WARNING: "!",
    CheckState.SKIPPED: "–",
}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    send: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Send a test mail to this address.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=25, help="Seconds to wait for each server.")
    ] = runner.MAX_SECONDS,
    as_json: Json = False,
) -> None:
    """Check all servers and settings of this deployment. The exit code is 1 if a check fails.

    The command checks the database, Redis, the broker, the workers of each queue, the object
    storage, the mail server, the public URL and the providers. The command ends within 30 seconds,
    even if a server hangs. To check mail, run the command in the container of the mail worker,
    because other containers have no mail settings. In other containers, mail is a warning, or an
    error if a mail has waited for ten minutes.
    """
    use_running_stack()
    diagnoses = _run_all_checks(send, seconds)
    rows = [
        select_fields(each, "part check state found advice")
        if as_json
        else {
            "": _MARKS[each.state],
            **select_fields(each, "part check found"),
            "what to do": each.advice,
        }
        for each in diagnoses
    ]
    print_records(rows, as_json=as_json)
    is_faulty = any(each.state is CheckState.WRONG for each in diagnoses)
    sys.stdout.flush()
    # Exit without waiting for threads, because a thread may hang.
    os._exit(FAULTY if is_faulty else 0)


def _run_all_checks(send: str | None, seconds: float) -> list[Diagnosis]:
    try:
        settings = load_settings()
    except SettingsError as error:
        advice = "Set this setting as described in docs/install.md."
        return [
            runner.wrong(name, rule, advice, "settings")
            for name, _, rule in (line.partition(": ") for line in str(error).splitlines())
        ]
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    # Disable the libraries' warnings about retries, because the command reports each fault itself.
    logging.disable(logging.WARNING)
    return all_checks.run_all_checks(settings, send_to=send, seconds=seconds)
