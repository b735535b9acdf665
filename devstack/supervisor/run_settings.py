from devstack.sandbox.sandbox_settings import llm_settings
from devstack.supervisor.embedded.stack import common_settings
from devstack.supervisor.home import run_file
from devstack.supervisor.home.environment import own_settings
from devstack.supervisor.home.home_folder import Home
from devstack.supervisor.home.secrets_file import load_or_create


def settings_of(home: Home) -> dict[str, str]:
    """The PRESSROOM_ settings of the stack that runs on this home; empty when none runs."""
    run = run_file.read(home)
    if run is None:
        return {}
    return {
        **common_settings(load_or_create(home), api_url=run.api_url),
        "PRESSROOM_DATABASE_URL": run.database_url,
        "PRESSROOM_REDIS_URL": run.redis_url,
        "PRESSROOM_S3_ENDPOINT": run.s3.endpoint,
        "PRESSROOM_S3_ACCESS_KEY": run.s3.access_key,
        "PRESSROOM_S3_SECRET_KEY": run.s3.secret_key,
        "PRESSROOM_S3_BUCKET": run.s3.bucket,
        # A command must find the model of a provider that is set for the stack.
        **llm_settings(run.sandbox_url, own_settings()),
    }
