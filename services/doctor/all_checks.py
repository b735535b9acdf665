"""Runs all checks of a deployment."""

from functools import partial

from core.settings import Settings
from services.doctor.runner import MAX_SECONDS, Check, Diagnosis, run_checks
from services.doctor.service_checks import check_mail, check_providers, check_public_url
from services.doctor.store_checks import check_broker, check_cache, check_database, check_storage
from services.doctor.work_checks import check_backup


def run_all_checks(
    settings: Settings, *, send_to: str | None = None, seconds: float = MAX_SECONDS
) -> list[Diagnosis]:
    parts: dict[str, Check] = {
        "database": check_database,
        "redis": check_cache,
        "broker": check_broker,
        "object storage": check_storage,
        "backup": check_backup,
        "mail": partial(check_mail, send_to),
        "public URL": check_public_url,
        "providers": check_providers,
    }
    return run_checks(parts, settings, seconds=seconds)
