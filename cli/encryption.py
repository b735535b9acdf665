"""The commands of ``pressroom encryption``, which manage encryption keys."""

from cli.connection import open_command_resources
from cli.output import Json, create_group, print_record
from services.accounts.factors import totp
from services.attachments import key_rotation

app = create_group("Manage encryption keys.")
# Without a callback, Typer would replace a group that has a single command with this command.
app.callback()(lambda: None)


@app.command("rotate")
def rotate_keys(as_json: Json = False) -> None:
    """Re-encrypt file keys and app secrets with the current key.

    The current key is the first key in PRESSROOM_ENCRYPTION_KEYS.
    """
    with open_command_resources() as resources:
        rewrapped = sum(key_rotation.rewrap_data_keys(resources))
        with resources.unit_of_work() as uow:
            rewrapped += totp.rewrap_secrets(uow, resources.key_wrapper)
        current = resources.key_wrapper.current
    print_record({"rewrapped": rewrapped, "key": current}, as_json=as_json)
