import httpx

from tests.contract.replies import data
from tests.contract.subscribers import Reader, count, new_list


def test_subscriber_count_is_true_right_after_every_change(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"

    def both() -> tuple[int, int]:
        return count(client, list_id), count(client, other)

    assert both() == (0, 0)
    reader.joins(list_id)
    assert both() == (1, 0)
    reader.wants_mail(list_id, enabled=False)
    assert both() == (1, 0)
    assert data(client.post(f"{path}/transfer", params={"dst_list_id": other})) == 1
    assert both() == (0, 1)
    reader.leaves(other)
    assert both() == (0, 0)
    stranger.post(f"/subscriptions/{other}", json={"email": reader.email})
    assert both() == (0, 0)
    reader.joins(other).joins(list_id)
    assert both() == (1, 1)
    assert data(client.delete(path)) == 1
    assert both() == (0, 1)
    assert {
        each["id"]: each["subscriber_count"] for each in data(client.get("/lists"))["items"]
    } == {list_id: 0, other: 1}
