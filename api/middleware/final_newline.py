from starlette.types import ASGIApp, Message, Receive, Scope, Send


class FinalNewlineMiddleware:
    """Ends each JSON answer with a newline, so that a shell's prompt begins a line of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_json = False

        async def send_line(message: Message) -> None:
            nonlocal is_json
            if message["type"] == "http.response.start":
                headers = message["headers"]
                is_json = dict(headers).get(b"content-type", b"").endswith(b"json")
                if is_json:
                    message["headers"] = list(map(_with_one_more, headers))
            elif is_json and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + b"\n"
            await send(message)

        await self._app(scope, receive, send_line)


def _with_one_more(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    name, value = header
    return (name, b"%d" % (int(value) + 1)) if name == b"content-length" else header
