"""What a plan bounds, in the words of the pages that show how much of it is used."""

from collections.abc import Mapping

from core.settings.plan_quotas import PlanQuota

QUOTAS: Mapping[PlanQuota, str] = {
    PlanQuota.MEMBERS: "Members",
    PlanQuota.LISTS: "Lists",
    PlanQuota.STORAGE_MB: "Megabytes of images",
    PlanQuota.KEYS: "API keys",
    PlanQuota.UNFINISHED_JOBS: "Jobs under way",
    PlanQuota.COMPOSER_PER_DAY: "Composer calls today",
}
