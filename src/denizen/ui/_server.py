"""The server of the page: what may be asked for, by whom, and what it answers.

It only reads. A request names a run by what the list calls it, and a file by what the run's page calls it; no path of a
request is ever opened. Pages run the scripts of this package and nothing else.
"""

import dataclasses
import functools
import hashlib
import ipaddress
import json
import math
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from denizen._version import __version__
from denizen.errors import DenizenError, InputError, need
from denizen.ui import _curves, _runs
from denizen.ui._agents import Snapshots
from denizen.ui._files import FILMS, PICTURES, Files, log
from denizen.ui._runs import Entry, Runs

PURPOSE = "serve the page"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHARED = {"d3.min.js", "plot.umd.min.js", "page.css"}  # which reports have, too
OWN = {"index.html", "ui.css", "ui.js"}
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
COMPARED = 12  # runs beside each other, at most
PIXELS = (50, 4000)

# Charts bring styles of their own; scripts are those of the package, and nothing is fetched from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report has scripts within it. It gets no origin, so that it can ask this server for nothing.
REPORTED = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; media-src data:; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclasses.dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: that has to be shown; "" on a loopback address.
        hosts: names that the header Host may have, besides those of the machine itself.
    """

    token: str = ""
    hosts: frozenset[str] = frozenset()

    def host(self, header: str) -> bool:
        """Whether a header Host means this machine: another page's name may have been made to lead here."""
        name = header.rpartition("]")[0].lstrip("[") if header.startswith("[") else header.partition(":")[0]
        if name.lower() in (*LOOPBACK, *self.hosts):
            return True
        if not self.token:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def known(self, shown: str) -> bool:
        """Whether this is the token; takes the same time for any other."""
        return not self.token or secrets.compare_digest(shown.encode(), self.token.encode())


def make_app(folders: Sequence[Path | str], token: str = "", hosts: Sequence[str] = ()) -> Any:
    """The page over some folders, as an ASGI application.

    Args:
        folders: of runs, or run folders; nothing outside of them is read.
        token: what a browser has to show once, as ``?token=…``; "": nothing, as on a loopback address.
        hosts: further names of the machine that a browser may call it by.

    Raises:
        InputError: one of them is no folder.
        MissingExtra: starlette is not installed.
    """
    need("starlette", "ui", PURPOSE)
    from starlette.applications import Starlette
    from starlette.routing import Route

    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(f"ui: there is no folder {folder}; give a folder that holds run folders, such as runs")
    page = _Page(Runs([Path(folder) for folder in folders]))
    answers = {
        "runs": page.runs,
        "run": page.run,
        "curves": page.curves,
        "agents": page.agents,
        "file": page.file,
        "csv": page.csv,
        "findings": page.findings,
    }
    routes = [Route("/", functools.partial(_asset, "index.html")), Route("/assets/{name}", _asset_of)]
    routes += [Route(f"/api/{name}", page.answer(answer)) for name, answer in answers.items()]
    app = Starlette(routes=routes)
    app.state.page = page
    return _Guard(app, Access(token, frozenset(name.lower() for name in hosts)))


class _Guard:
    """In front of the application: refuses what has no business here, and adds the headers of every answer."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app, self._access = app, access
        self._cookie = f"denizen_{hashlib.sha256(access.token.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refused = self._refused(scope)
        if refused is not None:
            return await refused(scope, receive, self._with_headers(send))
        return await self.app(scope, receive, self._with_headers(send))

    def _refused(self, scope: Any) -> Any:
        """An answer in the application's place; None where the request may pass."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page only reads\n", 405)
        if not self._access.host(headers.get("host", "")):
            return PlainTextResponse(
                "this name is none of the machine's; use the address that denizen ui printed\n", 421
            )
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["path"] != "/":
            return PlainTextResponse("another site may not ask\n", 403)
        if not self._access.token:
            return None
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if given is not None and self._access.known(given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, given, httponly=True, samesite="strict", path="/")
            return answer
        if given is None and self._access.known(self._shown(headers.get("cookie", ""))):
            return None
        return PlainTextResponse("the token is missing or wrong; open the address that denizen ui printed\n", 401)

    def _shown(self, header: str) -> str:
        try:
            found = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    @staticmethod
    def _with_headers(send: Any) -> Callable[[Any], Any]:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in given]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return sent


class _Gone(Exception):
    """A run, or something of it, that is not there any more."""


class _Page:
    """What the page asks for. One request at a time reads: readers keep what they have read."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self.reader, self._snapshots, self._files = runs, _curves.Reader(), Snapshots(), Files()
        self._lock = threading.Lock()

    def answer(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """An endpoint: what goes wrong with a folder is an answer of its own, never an error of the server."""
        from starlette.responses import Response

        def endpoint(request: Any) -> Any:
            try:
                with self._lock:
                    found = function(request.query_params)
            except _Gone:
                found = {"gone": True}
            except (DenizenError, OSError) as error:
                found = {"error": str(error)}
            return found if isinstance(found, Response) else Response(_json(found), media_type="application/json")

        return endpoint

    def _entry(self, id: str) -> Entry:
        entry = self._runs.get(id)
        if entry is None:
            raise _Gone
        return entry

    def _names(self, entries: Mapping[str, Entry | None]) -> dict[str, str]:
        """What to call runs beside each other: by their folders, where these differ."""
        there = {id: entry for id, entry in entries.items() if entry is not None}
        called = (
            {id: _runs.sendable(entry.path.name) for id, entry in there.items()},
            {id: _runs.row(entry, self._folder(entry))["path"] for id, entry in there.items()},
            {id: id for id in there},
        )
        return next(names for names in called if len(set(names.values())) == len(there))

    def _folder(self, entry: Entry) -> Path:
        return self._runs.folders[int(entry.id.partition(":")[0])]

    def runs(self, asked: Any) -> dict[str, Any]:
        """The list; ``same`` where it is as the browser has it."""
        rows = [_runs.row(entry, self._folder(entry)) for entry in self._runs.all()]
        told = {
            "runs": rows,
            "folders": [str(folder) for folder in self._runs.folders],
            "missing": [str(folder) for folder in self._runs.folders if not folder.is_dir()],
            "cut": self._runs.cut,
            "findings": len(self._files.findings(self._runs.folders)),
            "denizen": __version__,
        }
        version = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        return {"same": True} if asked.get("have") == version else {**told, "version": version}

    def run(self, asked: Any) -> dict[str, Any]:
        """A run's facts."""
        entry = self._entry(asked.get("id", ""))
        told = entry.manifest
        found: dict[str, Any] = _runs.row(entry, self._folder(entry))
        found["settings"] = _runs.settings(told)
        given = told.get("versions")
        found["versions"] = {str(k): _runs.text(v) for k, v in given.items()} if isinstance(given, dict) else {}
        if isinstance(told.get("commit"), str):
            found["versions"]["commit"] = _runs.text(told["commit"])
        found["log"] = log(entry.path)
        found["report"] = str(told.get("report") or "")[:20_000]
        found["files"] = self._files.of(entry.path)
        found["seeds"] = [f"{entry.id}/{seed.name}" for seed in entry.seeds]
        try:
            found["snapshots"] = self._snapshots.about(entry)
        except (DenizenError, OSError) as error:
            found |= {"snapshots": None, "snapshots_error": str(error)}
        return found

    def curves(self, asked: Any) -> dict[str, Any]:
        """Curves of one or more runs, each thinned to the width that is asked for, or why there are none."""
        pixels = min(max(_whole(asked.get("width", "800")), PIXELS[0]), PIXELS[1])
        have = dict(zip(asked.getlist("id"), asked.getlist("have"), strict=False))
        runs, entries = [], {id: self._runs.get(id) for id in asked.getlist("id")[:COMPARED]}
        names = self._names(entries)
        for id, entry in entries.items():
            if entry is None:
                runs.append({"id": id, "gone": True})
                continue
            base = {"id": id, "name": names[id], "status": entry.status, "version": entry.version}
            if have.get(id) == entry.version:
                runs.append(base | {"same": True})
                continue
            if entry.error:
                runs.append(base | {"error": entry.error})
                continue
            try:
                curves, unit = self.reader.curves(entry)
                runs.append(base | {"unit": unit, "curves": [_curves.sent(curve, pixels) for curve in curves]})
            except (DenizenError, OSError) as error:
                runs.append(base | {"error": str(error)})
        return {"runs": runs}

    def agents(self, asked: Any) -> dict[str, Any]:
        """A field of a snapshot."""
        entry = self._entry(asked.get("id", ""))
        place, replicate = _whole(asked.get("place", "0")), _whole(asked.get("replicate", "0"))
        return self._snapshots.frame(entry, asked.get("field", ""), place, replicate)

    def csv(self, asked: Any) -> Any:
        """The curves that are shown, with every point."""
        from starlette.responses import StreamingResponse

        entries = {id: self._entry(id) for id in asked.getlist("id")[:COMPARED]}
        names = self._names(entries)
        found = [(names[id], *self.reader.curves(entry)) for id, entry in entries.items()]
        headers = {"content-disposition": 'attachment; filename="curves.csv"'}
        lines = _curves.table(found, asked.getlist("series"))
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    def file(self, asked: Any) -> Any:
        """A picture, a film or a report of a run."""
        from starlette.responses import FileResponse, PlainTextResponse

        entry, name = self._entry(asked.get("id", "")), asked.get("name", "")
        path = self._files.path(entry.path, name)
        if path is None:
            return PlainTextResponse("there is no such file\n", 404)
        if path.suffix == ".html":
            return FileResponse(path, media_type=KINDS[".html"], headers={"content-security-policy": REPORTED})
        return FileResponse(path, media_type={**PICTURES, **FILMS}[path.suffix])

    def findings(self, asked: Any) -> dict[str, Any]:
        """Reports of the doctor that lie in the folders."""
        return {"reports": self._files.findings(self._runs.folders)}


def _json(value: Any) -> bytes:
    """As JSON; what it has no word for, NaN and halves of surrogate pairs, is null and an escape."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(str(name)): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _runs.sendable(value) if isinstance(value, str) else value


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise InputError(f"{text[:40]!r}: expected a whole number")
    return int(text)


@functools.cache
def _read(name: str) -> bytes:
    return (files("denizen") / ("report" if name in SHARED else "ui") / "assets" / name).read_bytes()


def _asset(name: str, request: Any) -> Any:
    from starlette.responses import Response

    return Response(_read(name), media_type=KINDS[Path(name).suffix])


def _asset_of(request: Any) -> Any:
    from starlette.responses import PlainTextResponse

    name = request.path_params["name"]
    return _asset(name, request) if name in SHARED | OWN else PlainTextResponse("there is no such file\n", 404)


# --- serving ----------------------------------------------------------------------------------------------------------


def serve(
    folders: Sequence[Path | str],
    host: str = "127.0.0.1",
    port: int | None = None,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        folders: of runs, or run folders.
        host: address to listen on. Any but a loopback address needs a token, which the address that is told has in it.
        port: to listen on; None: 8421, or one of the next that is free.
        ready: gets the address, once it can be opened.

    Raises:
        InputError: one of the folders is none, or the address cannot be listened on.
        MissingExtra: starlette or uvicorn is not installed.
    """
    uvicorn = need("uvicorn", "ui", PURPOSE)
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    app = make_app(folders, token, [host, socket.gethostname(), socket.getfqdn()] if token else [])
    listening = _listening(host, port)
    number = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    if token and host in ("0.0.0.0", "::"):
        name = socket.gethostname()
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with listening:
        ready(f"http://{name}:{number}/{f'?token={token}' if token else ''}")
        server.run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    for number in range(8421, 8441) if port is None else (port,):
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(128)
            return made
        except (OSError, OverflowError) as failed:
            made.close()
            error = OSError(str(failed)) if isinstance(failed, OverflowError) else failed
    where = f"{host}:{'8421 to 8440' if port is None else port}"
    raise InputError(f"ui: cannot listen on {where}: {error.strerror or error if error else ''}; give another --port")
