from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.settings.notations import PlanQuota, parse_quotas
from core.settings.product_settings import DeniedNames


class DenyListSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_")

    deny_list: DeniedNames = ()


def read_deny_list(monkeypatch: pytest.MonkeyPatch, notation: str) -> tuple[str, ...]:
    monkeypatch.setenv("TEST_DENY_LIST", notation)
    return DenyListSettings().deny_list


def test_deny_list_setting_accepts_comma_separated_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = read_deny_list(monkeypatch, " spam@example.net, *.example.org,example.org ,")
    assert entries == ("spam@example.net", "*.example.org", "example.org")


def test_deny_list_setting_reads_one_entry_per_line_from_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "denied.txt"
    file.write_text("# ours\nexample.org # all of it\n\n  *.example.net\r\n")
    assert read_deny_list(monkeypatch, str(file)) == ("example.org", "*.example.net")


@pytest.mark.parametrize(
    "notation", ["/no/such/file", "a@b@c", "*.", "*", "a*.net", "example.org,two words"]
)
def test_malformed_deny_list_setting_is_rejected(
    monkeypatch: pytest.MonkeyPatch, notation: str
) -> None:
    with pytest.raises(ValidationError):
        read_deny_list(monkeypatch, notation)


def test_deny_list_file_that_is_not_utf8_text_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "denied.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValidationError, match="not valid UTF-8"):
        read_deny_list(monkeypatch, str(file))


def test_quota_setting_is_parsed_by_quota_name() -> None:
    assert parse_quotas(" lists=5 , members=0,") == {PlanQuota.LISTS: 5, PlanQuota.MEMBERS: 0}
    assert parse_quotas("") == {}


@pytest.mark.parametrize(
    "notation",
    [
        "list=5",
        "lists",
        "lists=",
        "lists=-1",
        "lists=1e3",
        "lists=1.5",
        "lists=5,lists=6",
        "lists=\u0665",
    ],
)
def test_malformed_quota_setting_is_rejected_with_the_quota_name(notation: str) -> None:
    with pytest.raises(ValueError, match=r"lists?"):
        parse_quotas(notation)
