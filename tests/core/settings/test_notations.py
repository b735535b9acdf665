from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.settings.notations import PlanQuota, parse_quotas
from core.settings.product_settings import DeniedNames


class Denied(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_")

    deny_list: DeniedNames = ()


def read(monkeypatch: pytest.MonkeyPatch, written: str) -> tuple[str, ...]:
    monkeypatch.setenv("TEST_DENY_LIST", written)
    return Denied().deny_list


def test_entries_are_parted_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, " spam@example.net, *.example.org,example.org ,")
    assert found == ("spam@example.net", "*.example.org", "example.org")


def test_a_path_names_a_file_with_one_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "denied.txt"
    file.write_text("# ours\nexample.org # all of it\n\n  *.example.net\r\n")
    assert read(monkeypatch, str(file)) == ("example.org", "*.example.net")


@pytest.mark.parametrize(
    "written", ["/no/such/file", "a@b@c", "*.", "*", "a*.net", "example.org,two words"]
)
def test_what_can_not_be_read_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    with pytest.raises(ValidationError):
        read(monkeypatch, written)


def test_a_file_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "denied.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValidationError, match="no UTF-8 text"):
        read(monkeypatch, str(file))


def test_quotas_are_read_by_their_names() -> None:
    assert parse_quotas(" lists=5 , members=0,") == {PlanQuota.LISTS: 5, PlanQuota.MEMBERS: 0}
    assert parse_quotas("") == {}


@pytest.mark.parametrize(
    "written",
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
def test_what_is_no_quota_is_named(written: str) -> None:
    with pytest.raises(ValueError, match=r"lists?"):
        parse_quotas(written)
