"""The baseline of ``benchmarks.consume``, started by ``python -m benchmarks.bare_consume PORT``.

Runs a FastAPI application that looks up an API key and charges credits. Unlike Pressroom, the
baseline application has no rate limits, deadlines, request ids or business rules.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Annotated, Any

import anyio.to_thread
import psycopg2
import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import Response
from psycopg2.extensions import connection
from psycopg2.extras import Json
from pydantic import BaseModel

from api.limits.bulkheads import MONEY
from core.settings import load_settings

_CALLER = "SELECT user_id FROM api_keys WHERE secret_hmac = %s AND revoked_at IS NULL"
_CHARGE = "SELECT outcome, answer FROM credit_consume(%s, NULL, %s, %s, %s, NULL, NULL, NULL)"


class Charge(BaseModel):
    amount_credit: float
    source_id: str
    meta: dict[str, Any] | None = None


def bare_app() -> FastAPI:
    settings = load_settings()
    signer = settings.keyring.signer("api-key")
    url = settings.database_url.get_secret_value().replace("postgresql+psycopg2:", "postgresql:")
    idle: SimpleQueue[connection] = SimpleQueue()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MONEY.threads
        for _each in range(MONEY.threads):
            connected = psycopg2.connect(url)
            connected.autocommit = True
            idle.put(connected)
        yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/healthz")
    def health() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/auxilia/credits/consume")
    def consume(charge: Charge, authorization: Annotated[str, Header()]) -> Response:
        digest = signer.digest(authorization.removeprefix("Bearer ").encode())
        connected = idle.get()
        try:
            with connected.cursor() as cursor:
                cursor.execute(_CALLER, (digest,))
                [(user_id,)] = cursor.fetchall()
                meta = Json(charge.meta)
                cursor.execute(_CHARGE, (user_id, charge.amount_credit, charge.source_id, meta))
                [(outcome, answer)] = cursor.fetchall()
        finally:
            idle.put(connected)
        assert outcome == "done"
        return Response(f'{{"data":{answer}}}', media_type="application/json")

    return app


if __name__ == "__main__":
    uvicorn.run(bare_app(), host="127.0.0.1", port=int(sys.argv[1]), log_config=None)
