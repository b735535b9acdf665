from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("pressroom_llm_calls", "Requests to the language model", ["model", "outcome"])
TOKENS = Counter(
    "pressroom_llm_tokens", "Tokens, as the server counts them", ["model", "direction"]
)
SECONDS = Histogram(
    "pressroom_llm_seconds",
    "Time that an answer took, retries included",
    ["model"],
    buckets=(0.25, 0.5, 1, 2, 4, 8, 15, 20),
)
CIRCUIT_OPEN = Gauge(
    "pressroom_llm_circuit_open", "1 while the language model is left alone", ["model"]
)
