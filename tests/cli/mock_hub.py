"""A model hub and the host of its large files, on two ports of this machine, as far as downloads see
them: the list of a repository's files, HEAD and GET of a file, redirects, ranges, and what goes wrong."""

import collections
import contextlib
import hashlib
import http.server
import json
import socket
import ssl
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Asked = collections.namedtuple("Asked", "host method path token range login")


def etag_of(name, data):
    """Large files go by their SHA-256, small ones by git's name of the blob."""
    if is_large(name):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(name):
    return name.endswith((".gguf", ".safetensors"))


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    """A proxy: of http it answers as the hub itself, of https it is a way to the port asked for."""

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        hub, login = self.server.hub, self.headers.get("Proxy-Authorization")
        hub.asked.append(Asked("proxy", "CONNECT", self.path, None, None, login))
        if login != hub.proxy_login:
            return self.send_error(407)
        port = int(self.path.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self.copy, args=(there, self.connection))
            back.start()
            self.copy(self.connection, there)
            back.join()
        self.close_connection = True
        return None

    @staticmethod
    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Hub:
    """`repos`: {"org/repo": {path: bytes}}. What it was asked is in `asked`. As a context it serves."""

    def __init__(self, repos, certificate=None):
        self.repos, self.asked, self.certificate = repos, [], certificate
        self.token = None          # who may read; None: everybody
        self.refusal = None        # (status, X-Error-Code, body) of every answer
        self.names = None          # files that are listed, when they are not those that there are
        self.announced = {}        # path: (etag, size), when they are not the file's
        self.pieces = []           # of each GET of a large file in turn: bytes until the line is cut
        self.ranges = True         # whether the host of large files knows ranges
        self.elsewhere = None      # Location in place of the host of large files
        self.proxy_login = None    # Proxy-Authorization that the proxy wants
        self.revisions = {"main": COMMIT}  # what names a commit

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.url = self.stack.enter_context(self.serve("hub", HubHandler))
        self.files_url = self.stack.enter_context(self.serve("files", FilesHandler))
        self.proxy_url = self.stack.enter_context(self.serve("proxy", ProxyHandler, plain=True))
        return self

    def __exit__(self, *_):
        self.stack.close()

    @contextlib.contextmanager
    def serve(self, host, handler, plain=False):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.hub, server.host = self, host
        scheme, name = "http", "127.0.0.1"
        if self.certificate and not plain:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme, name = "https", "localhost"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{scheme}://{name}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def gets(self, host):
        return [asked for asked in self.asked if asked.host == host and asked.method == "GET"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            super().handle()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        hub.asked.append(Asked(self.server.host, self.command, self.path,
                               self.headers.get("Authorization"), self.headers.get("Range"),
                               self.headers.get("Proxy-Authorization")))
        self.answer(hub)

    def send(self, status, body=b"", **fields):
        self.send_response(status)
        fields.setdefault("Content_Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


class HubHandler(Handler):

    def answer(self, hub):
        if self.path.startswith("http://") and self.headers.get("Proxy-Authorization") != hub.proxy_login:
            return self.send(407, b"who asks?")
        if hub.refusal:
            status, code, body = hub.refusal
            return self.send(status, body, X_Error_Code=code)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.send(401, b"{}", X_Error_Code="GatedRepo")
        words = self.path.removeprefix("http://hub.invalid").split("/")  # as a proxy is asked
        if words[1] == "api":
            return self.list(hub, "/".join(words[3:5]), urllib.parse.unquote(words[6]))
        return self.file(hub, "/".join(words[1:3]), words[4], "/".join(words[5:]))

    def list(self, hub, repo, revision):
        if repo not in hub.repos:
            return self.send(404, b"{}", X_Error_Code="RepoNotFound")
        commit = hub.revisions.get(revision, revision)
        if commit not in hub.revisions.values():
            return self.send(404, b"{}", X_Error_Code="RevisionNotFound")
        names = hub.names or list(hub.repos[repo])
        listing = {"id": repo, "sha": commit, "siblings": [{"rfilename": name} for name in names]}
        return self.send(200, json.dumps(listing).encode())

    def file(self, hub, repo, commit, path):
        data = hub.repos.get(repo, {}).get(path)
        if data is None or commit not in hub.revisions.values():
            return self.send(404, b"{}", X_Error_Code="EntryNotFound")
        etag, size = hub.announced.get(path, (etag_of(path, data), len(data)))
        if not is_large(path):
            return self.send(200, data, ETag=f'"{etag}"')
        location = hub.elsewhere or f"{hub.files_url}/{repo}/{path}?signature=abc%2F"
        return self.send(302, b"elsewhere", Location=location, X_Linked_Etag=f'"{etag}"',
                         X_Linked_Size=str(size), ETag='"of the pointer"')


class FilesHandler(Handler):

    def answer(self, hub):
        path = self.path.split("?")[0]
        org, repo, name = path[1:].split("/", 2)
        data = hub.repos[f"{org}/{repo}"][name]
        begin, fields, status = 0, {}, 200
        if hub.ranges and "Range" in self.headers:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            fields["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            status = 206
        cut = hub.pieces.pop(0) if hub.pieces else None
        rest = data[begin:]
        self.send(status, rest if cut is None else rest[:cut],
                  Content_Length=str(len(rest)), **fields)
        if cut is not None:
            self.close_connection = True
