import pytest

from api.bodies.json_bodies import is_json, parse_media_type, remove_byte_order_mark


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        " application/json ; charset=utf-8",
        'application/json;charset="latin-1"',
        "application/vnd.x+json",
        "application/problem+json; charset=utf-8",
    ],
)
def test_json_has_two_kinds_of_media_type(content_type: str) -> None:
    assert is_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "json",
        "text/json",
        "text/x+json",
        "application/x/json",
        "application/jsonp",
        "application/json-seq",
        "multipart/form-data; boundary=application/json",
    ],
)
def test_nothing_else_is_json(content_type: str) -> None:
    assert not is_json(content_type)


def test_parameters_and_letter_case_are_no_part_of_a_media_type() -> None:
    assert parse_media_type("Multipart/Form-Data; boundary=A") == "multipart/form-data"


def test_one_byte_order_mark_is_passed_over() -> None:
    mark = b"\xef\xbb\xbf"
    assert remove_byte_order_mark(mark + b"{}") == b"{}"
    assert remove_byte_order_mark(mark + mark + b"{}") == mark + b"{}"
