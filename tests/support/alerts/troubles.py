"""Every fault that the alert tests cause, in the order of the alert groups in alerts.yml."""

from tests.support.alerts.external_troubles import EXTERNAL_TROUBLES
from tests.support.alerts.job_troubles import JOB_TROUBLES
from tests.support.alerts.money_troubles import MONEY_TROUBLES
from tests.support.alerts.request_troubles import REQUEST_TROUBLES
from tests.support.alerts.store_troubles import STORE_TROUBLES

TROUBLES = {
    each.name: each
    for each in (
        *STORE_TROUBLES,
        *REQUEST_TROUBLES,
        *JOB_TROUBLES,
        *EXTERNAL_TROUBLES,
        *MONEY_TROUBLES,
    )
}
