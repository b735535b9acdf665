"""The commands of ``pressroom encryption``: the encryption keys."""

from cli.connection import connected
from cli.output import Json, group, show
from services.accounts.factors import totp
from services.attachments import key_rotation

app = group("Encryption keys.")
# With a callback, a group stays a group while it has only one command.
app.callback()(lambda: None)


@app.command("rotate")
def rotate_keys(as_json: Json = False) -> None:
    """Wrap the keys of files and the secrets of apps again.

    The first of PRESSROOM_ENCRYPTION_KEYS wraps them.
    """
    with connected() as resources:
        rewrapped = sum(key_rotation.rewrap_data_keys(resources))
        with resources.unit_of_work() as uow:
            rewrapped += totp.rewrap_secrets(uow, resources.key_wrapper)
        current = resources.key_wrapper.current
    show({"rewrapped": rewrapped, "key": current}, as_json=as_json)
