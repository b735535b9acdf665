from api.waiting.lane_ages import MAX_SECONDS_OF_WAITERS
from core.lanes import Lane
from storage.broker import queue_name
from storage.redis.canaries import Canaries
from tests.stack import Stack, eventually


def test_metrics_say_how_long_each_lane_takes(stack: Stack) -> None:
    token = stack.settings().metrics_token
    assert token is not None

    def is_shown() -> bool:
        with stack.client(token.get_secret_value()) as client:
            shown = client.get("/metrics").raise_for_status().text
        return 'pressroom_canary_seconds{lane="media"}' in shown

    eventually(is_shown, what="the canary of a lane")
    assert stack.resources.redis.llen(queue_name(Lane.MEDIA)) <= 1


def test_a_canary_that_does_not_arrive_shows_that_the_lane_stands_still(stack: Stack) -> None:
    canaries, lane = Canaries(stack.resources.redis), "still"
    sent = canaries.due(lane)
    assert sent is not None
    # At most one is under way.
    assert canaries.due(lane) is None
    first = canaries.seconds()[lane]
    eventually(lambda: canaries.seconds()[lane] > first, what="a growing time")
    canaries.arrived(lane, sent)
    took = canaries.seconds()[lane]
    assert took > first
    assert canaries.seconds()[lane] == took


def test_a_lost_canary_is_sent_again_before_callers_are_refused_for_it(stack: Stack) -> None:
    redis, lane = stack.resources.redis, "lost"
    canaries = Canaries(redis)
    assert canaries.due(lane) is not None
    now, _ = redis.time()
    moment = str(now - MAX_SECONDS_OF_WAITERS / 2 - 1)
    redis.hset("pressroom:canaries", mapping={f"{lane}:sent": moment, f"{lane}:waiting": moment})
    sent = canaries.due(lane)
    assert sent is not None
    canaries.arrived(lane, sent)
    assert canaries.seconds()[lane] < MAX_SECONDS_OF_WAITERS / 2


def test_a_lane_to_which_nobody_sends_canaries_any_more_shows_for_how_long(stack: Stack) -> None:
    """Its only worker hangs, and sends none that could be late."""
    redis, lane = stack.resources.redis, "silent"
    canaries = Canaries(redis)
    sent = canaries.due(lane)
    assert sent is not None
    canaries.arrived(lane, sent)
    now, _ = redis.time()
    for silent, is_shown in ((20, False), (40, True), (100_000, False)):
        redis.hset("pressroom:canaries", f"{lane}:sent", str(now - silent))
        assert (canaries.seconds_or_silence()[lane] >= silent) == is_shown
        # Callers are refused for what canaries found alone.
        assert canaries.seconds()[lane] < silent
    redis.hdel("pressroom:canaries", f"{lane}:sent", f"{lane}:took")
