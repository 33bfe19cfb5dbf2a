"""A Hub on loopback that the real client talks to: repositories, commits, and the ways to say no."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

ENTITLED = "Bearer hf_entitled"


@dataclass
class Repository:
    """Files at one commit, reachable by its revisions; `refusal` is (status, code of the Hub) instead.

    `listed_sizes` states false sizes for some files. `gated_files` lists its files to all and serves
    them to the token "hf_entitled"; `broken_files` are listed, but asking for one finds the Hub out
    of order. With `silent_seconds` the question whether a token may read is answered so late.
    """

    files: Mapping[str, bytes]
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    revisions: tuple[str, ...] = ("main",)
    refusal: tuple[int, str | None] | None = None
    gated_files: bool = False
    broken_files: frozenset[str] = frozenset()
    silent_seconds: float = 0
    listed_sizes: Mapping[str, int] = field(default_factory=dict)

    def size(self, name: str) -> int:
        return self.listed_sizes.get(name, len(self.files[name]))


@dataclass
class Hub:
    """The repositories by id, and what was asked for: (method, path, Authorization).

    Data sets have ids of their own, as on the Hub: a model and a data set may have the same one.
    """

    repositories: dict[str, Repository]
    data_sets: dict[str, Repository] = field(default_factory=dict)
    endpoint: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def downloads(self) -> list[str]:
        """Names of the files whose content was asked for, in order."""
        return [
            path.split("/resolve/")[1].split("/", 1)[1]
            for method, path, _ in self.requests
            if method == "GET" and "/resolve/" in path
        ]


@contextmanager
def running_hub(
    repositories: dict[str, Repository], data_sets: dict[str, Repository] | None = None
) -> Iterator[Hub]:
    """A Hub that answers for as long as the block runs."""
    hub = Hub(repositories, data_sets or {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(with_body=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append((self.command, path, self.headers.get("Authorization")))
        shelf, parts = self._shelf(path)
        repository = shelf.get("/".join(parts[:2]))
        if repository is None:
            self._refuse(401, "RepoNotFound")
        elif repository.refusal is not None:
            self._refuse(*repository.refusal)
        else:
            self._serve(repository, path, parts[2:], with_body=with_body)

    def _shelf(self, path: str) -> tuple[dict[str, Repository], list[str]]:
        for prefix in ("api/datasets/", "datasets/"):
            if path.startswith(prefix):
                return self.hub.data_sets, path.removeprefix(prefix).split("/")
        return self.hub.repositories, path.removeprefix("api/models/").split("/")

    def _serve(self, repository: Repository, path: str, rest: list[str], *, with_body: bool) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in {*repository.revisions, repository.commit}:
            self._refuse(404, "RevisionNotFound")
        elif path.endswith("/auth-check"):
            time.sleep(repository.silent_seconds)
            # A token is good here if it says so.
            entitled = not repository.gated_files or self.headers.get("Authorization") == ENTITLED
            self._send(b"{}", {}) if entitled else self._refuse(403, "GatedRepo")
        elif path.startswith("api/"):
            self._send(json.dumps(_document(repository, rest)).encode(), {"Content-Type": "application/json"})
        elif repository.gated_files and self.headers.get("Authorization") != ENTITLED:
            self._refuse(403, "GatedRepo")
        elif "/".join(rest[2:]) in repository.broken_files:
            # The client would try again after a 503, for half a minute.
            self._refuse(501, None)
        elif "/".join(rest[2:]) not in repository.files:
            self._refuse(404, "EntryNotFound")
        else:
            content = repository.files["/".join(rest[2:])]
            etag = hashlib.sha256(content).hexdigest()
            self._send(
                content if with_body else b"",
                {"ETag": f'"{etag}"', "X-Repo-Commit": repository.commit},
                length=len(content),
            )

    def _refuse(self, status: int, code: str | None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, headers: Mapping[str, str], *, length: int | None = None) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


def _document(repository: Repository, rest: list[str]) -> Any:
    # The answer about paths that were asked for names all, which a client must bear.
    if rest[:1] in (["tree"], ["paths-info"]):
        return [
            {"type": "file", "path": name, "size": repository.size(name), "oid": "0" * 40}
            for name in repository.files
        ]
    siblings = [{"rfilename": name, "size": repository.size(name)} for name in repository.files]
    gated = "manual" if repository.gated_files else False
    return {"id": "owner/name", "sha": repository.commit, "siblings": siblings, "tags": [], "gated": gated}
