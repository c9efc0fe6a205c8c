"""A FastAPI app with limits. What is too many is answered 429, with Retry-After.

    $ TOLLWAY_STORE=redis://localhost uvicorn --app-dir examples rules_fastapi:app
    $ curl -i http://localhost:8000/quote
"""

import math
import os

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tollway import Or, RateLimit, RateLimitExceeded

app = FastAPI()
rl = RateLimit(os.environ.get("TOLLWAY_STORE"), namespace="quotes")


class Caller:
    """Who asks: what the selectors of a request are called."""

    def __init__(self, request: Request):
        self.user = request.headers.get("x-user")
        self.address = request.client.host


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, error: RateLimitExceeded):
    wait = {} if error.retry_after is None else {"Retry-After": str(math.ceil(error.retry_after))}
    return JSONResponse({"error": str(error)}, 503 if error.degraded else 429, wait)


@app.get("/quote")
async def quote(request: Request):
    async with rl.limit(Or("user:3/h", "address:5/m"), key="quote", selector=Caller(request)):
        return {"quote": "All good things"}


@app.get("/weather/{city}")
@rl.limit("3/h")  # Below the route: what FastAPI calls is what is limited.
async def weather(city: str):
    return {"city": city, "weather": "fine"}


@app.get("/report")
@rl.limit("client:1/h", client=lambda: "everybody")
def report():  # Not async: FastAPI runs it, and its limit, in a thread.
    return {"report": "ready"}
