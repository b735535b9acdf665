"""The commands of ``pressroom encryption``, which manage encryption keys."""

from collections import Counter

import typer

from cli.connection import open_command_resources
from cli.output import Json, create_group, print_record
from services.accounts.factors import totp
from services.attachments import key_rotation

_STILL_USED = (
    "The key {key} still encrypts {count} secrets. Restart all processes, and repeat the command."
)
_UNUSED = (
    "Nothing in the database uses the key {key}. Keep the key as long as you keep backups from"
    " before the rotation."
)

app = create_group("Manage encryption keys.")
# Without a callback, Typer would replace a group that has a single command with this command.
app.callback()(lambda: None)


@app.command("rotate")
def rotate_keys(as_json: Json = False) -> None:
    """Re-encrypt file keys and app secrets with the current key.

    The current key is the first key in PRESSROOM_ENCRYPTION_KEYS. The command shows the
    number of secrets in the database that each other key still encrypts.
    """
    with open_command_resources() as resources:
        rewrapped = sum(key_rotation.rewrap_data_keys(resources))
        with resources.unit_of_work() as uow:
            rewrapped += totp.rewrap_secrets(uow, resources.key_wrapper)
            uses = Counter(totp.count_uses(uow))
        current = resources.key_wrapper.current
        uses += key_rotation.count_uses(resources)
        old_keys = {
            key.id: uses[key.id]
            for key in resources.settings.encryption_keyring
            if key.id != current
        }
    print_record({"rewrapped": rewrapped, "key": current, "old_keys": old_keys}, as_json=as_json)
    for key_id, count in () if as_json else old_keys.items():
        typer.echo((_STILL_USED if count else _UNUSED).format(key=key_id, count=count))
