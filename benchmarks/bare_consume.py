"""Serves two minimal routes that ``benchmarks.consume`` compares with Pressroom.

To start the server, run ``python -m benchmarks.bare_consume PORT``. The server runs a FastAPI
application with two routes that charge credits. Unlike Pressroom, this application has no rate
limits, deadlines, request ids or business rules. The route ``/auxilia/credits/consume`` looks up an
API key and calls Pressroom's SQL function. The route ``/lean/consume`` uses two small tables
instead of Pressroom's tables, checks no credential, and writes entries without a hash chain.
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

LEAN_PATH = "/lean/consume"
# Creates the tables of the route ``LEAN_PATH``, and adds %s accounts with the ids 1, 2, 3 and so
# on.
CREATE_LEAN_TABLES = """
CREATE TABLE lean_accounts (id bigint PRIMARY KEY, balance numeric(15, 4) NOT NULL);
CREATE TABLE lean_entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES lean_accounts,
    amount numeric(15, 4) NOT NULL,
    balance numeric(15, 4) NOT NULL,
    source_id text NOT NULL,
    meta jsonb,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON lean_entries (account_id, id);
INSERT INTO lean_accounts SELECT n, 1000000 FROM generate_series(1, %s) AS n;
GRANT SELECT, INSERT, UPDATE ON lean_accounts, lean_entries TO PUBLIC
"""
_LEAN_CHARGE = """
WITH account AS (
    UPDATE lean_accounts SET balance = balance - %(amount)s
    WHERE id = %(account_id)s AND balance >= %(amount)s
    RETURNING id, balance
)
INSERT INTO lean_entries (account_id, amount, balance, source_id, meta)
SELECT id, %(amount)s, balance, %(source_id)s, %(meta)s FROM account
RETURNING id, balance::text
"""


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

    @app.post(LEAN_PATH)
    def consume_leanly(charge: Charge, authorization: Annotated[str, Header()]) -> dict[str, Any]:
        values = {
            "account_id": int(authorization.removeprefix("Bearer ")),
            "amount": charge.amount_credit,
            "source_id": charge.source_id,
            "meta": Json(charge.meta),
        }
        connected = idle.get()
        try:
            with connected.cursor() as cursor:
                cursor.execute(_LEAN_CHARGE, values)
                [(entry_id, balance)] = cursor.fetchall()
        finally:
            idle.put(connected)
        return {"data": {"id": entry_id, "balance_after": balance}}

    return app


if __name__ == "__main__":
    uvicorn.run(bare_app(), host="127.0.0.1", port=int(sys.argv[1]), log_config=None)
