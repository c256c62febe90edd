"""A module with a route for everything that a route can do, well or badly."""

from __future__ import annotations

ROUTED = """
    import asyncio
    import os

    import msgspec

    from corral.sdk import CommandParameter, HttpError, PlatformModule, Response


    class Point(msgspec.Struct, forbid_unknown_fields=True):
        x: int
        y: int = 0


    class Routed(PlatformModule):
        def __init__(self):
            self.begun = 0
            self.ended = []
            self.posted = []

        def register_routes(self, routes):
            routes.get("/echo/{name}", self.echo, summary="Say what was asked")
            routes.get("/files/{rest:path}", self.echo)
            routes.post("/points", self.point, body=Point, answer=Point)
            routes.put("/raw", self.raw, body=bytes, max_body=1000)
            routes.delete("/echo/{name}", self.echo, permission="nodes.manage")
            routes.get("/admins", self.echo, permission="tokens.manage")
            routes.get("/state", self.state)
            routes.get("/slow", self.slow, deadline_ms=300)
            routes.post("/slow", self.slow, deadline_ms=300)
            routes.get("/wait", self.wait, deadline_ms=60_000)
            routes.get("/raises", self.raises)
            routes.get("/refuses", self.refuses)
            routes.get("/dies", self.dies)
            routes.get("/answer/{kind}", self.answer)
            routes.get("/numbers", self.numbers, streams=True, deadline_ms=20_000)
            routes.get("/flood", self.flood, streams=True, deadline_ms=60_000)
            routes.get("/held", self.held, streams=True, deadline_ms=60_000)
            routes.get("/broken", self.broken, streams=True)
            routes.get("/stalls", self.stalls, streams=True, deadline_ms=300)
            routes.get("/plain", self.echo, streams=True)

        def register_commands(self, commands):
            commands.add("echo", self.said, help="Say it again", parameters=[CommandParameter("word")])
            commands.add("echo admin", self.said, permission="tokens.manage")
            commands.add("fail", self.failing)

        async def health_check(self):
            return None

        def echo(self, request):
            return {
                "method": request.method,
                "path": request.path,
                "parameters": dict(request.parameters),
                "query": list(request.raw_query),
                "headers": dict(request.headers),
                "caller": [request.caller.name, request.caller.role, request.caller.address],
            }

        async def point(self, request):
            self.posted.append(request.body.x)
            return Response(request.body, status=201)

        async def raw(self, request):
            return {"size": len(request.body)}

        def state(self, request):
            return {"begun": self.begun, "ended": self.ended, "posted": self.posted}

        async def slow(self, request):
            await self.mark("slow", asyncio.sleep(3600))

        async def wait(self, request):
            await self.mark("wait", asyncio.sleep(3600))

        async def mark(self, name, work):
            self.begun += 1
            try:
                await work
            finally:
                self.ended.append(name)

        def raises(self, request):
            raise ValueError("geheim")

        def refuses(self, request):
            raise HttpError(409, "not now", hint="later")

        def dies(self, request):
            os._exit(3)

        def answer(self, request):
            kind = request.parameters["kind"]
            if kind == "html":
                return Response("<script>alert(1)</script>", content_type="text/html; charset=utf-8")
            if kind == "svg":
                return Response("<svg/>", content_type="image/svg+xml")
            if kind == "cookie":
                return Response("x", headers={
                    "Set-Cookie": "a=b", "Connection": "close", "Transfer-Encoding": "chunked",
                    "Content-Security-Policy": "default-src *", "Access-Control-Allow-Origin": "*",
                    "X-Accel-Redirect": "/etc", "Clear-Site-Data": "*", "X-Request-Id": "mine",
                    "X-Mine": "yes", "ETag": '"1"', "Cache-Control": "max-age=5", "Content-Length": "7",
                })
            if kind == "injected":
                return self.raw_answer(headers=(("x-a", "a\\r\\nSet-Cookie: b=c"),))
            if kind == "early":
                return self.raw_answer(status=101)
            if kind == "garbage":
                return self.raw_answer(headers=((1, 2, 3),))
            if kind == "name":
                return Response("x", headers={"X A": "a"})
            if kind == "many":
                return Response("x", headers={f"X-{number}": "a" for number in range(100)})
            if kind == "none":
                return None
            return Response("body", status=int(kind))

        def raw_answer(self, **fields):
            response = Response("x")
            for name, value in fields.items():
                setattr(response, name, value)
            return response

        async def count(self, name, numbers):
            self.begun += 1
            try:
                for number in numbers:
                    yield f"{number}\\n".encode()
            finally:
                self.ended.append(name)

        async def numbers(self, request):
            return Response.stream(self.count("numbers", range(3)), content_type="text/plain")

        async def flood(self, request):
            async def pieces():
                self.begun += 1
                try:
                    while True:
                        yield b"x" * 65536
                        self.begun += 1
                finally:
                    self.ended.append("flood")
            return Response.stream(pieces(), content_type="application/octet-stream")

        async def held(self, request):
            async def pieces():
                self.begun += 1
                try:
                    if "say" in request.query:
                        yield b"one"
                    await asyncio.sleep(3600)
                finally:
                    self.ended.append("held")
            return Response.stream(pieces(), content_type="text/plain")

        async def broken(self, request):
            async def pieces():
                yield b"one"
                raise ValueError("geheim")
            return Response.stream(pieces(), content_type="text/plain")

        async def stalls(self, request):
            async def pieces():
                yield b"one"
                await asyncio.sleep(3600)
            return Response.stream(pieces(), content_type="text/plain")

        async def said(self, call):
            return [f"{call.caller.role} said", *call.arguments]

        async def failing(self, call):
            raise RuntimeError("geheim")
"""
