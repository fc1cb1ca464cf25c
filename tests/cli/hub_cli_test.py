"""-hf ORG/REPO[@REVISION][:QUANT] from outside, against a hub on this machine."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile

from mock_hub import COMMIT, Hub, etag_of
from program import PROGRAM, ROOT, WithRandomModel, environment, main, run

GOLDEN = ROOT / "tests" / "data" / "golden"
PROXIES = {name: None for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                                   "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")}
HF = {name: None for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE")}


def files_of(family):
    return {path.name: path.read_bytes() for path in (GOLDEN / family).iterdir()
            if path.suffix != ".bin" and path.name != "golden.json"}


class HubCli(WithRandomModel):

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        folder = {name: data for name, data in files_of("qwen2").items() if name != "model.gguf"}
        llama = files_of("llama")
        self.repos = {
            "org/quants": {"README.md": b"# about", "m-Q8_0.gguf": self.model.read_bytes(),
                           "m-Q4_K_M.gguf": llama["model.gguf"], "mmproj-F16.gguf": b"no model"},
            "org/folder": {**folder, "onnx/model.onnx": b"another", "pytorch_model.bin": b"another",
                           "generation_config.json": b"{}"},
        }
        self.hub = Hub(self.repos)
        self.hub.__enter__()
        self.addCleanup(self.hub.__exit__)
        self.addCleanup(shutil.rmtree, self.home)

    def variables(self, **changes):
        return {**PROXIES, **HF, "HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.url, **changes}

    def inspect(self, spec, **changes):
        return run("inspect", "--json", "-hf", spec, **self.variables(**changes))

    def repo_folder(self, repo):
        return self.home / "hub" / ("models--" + repo.replace("/", "--"))

    def leftovers(self, repo):
        return sorted(path.name for path in self.repo_folder(repo).glob("blobs/*.incomplete"))

    def assert_layout(self, repo, names, revision="main", commit=COMMIT):
        """What huggingface_hub's documentation says of its cache, file by file."""
        folder = self.repo_folder(repo)
        if revision != commit:
            self.assertEqual((folder / "refs" / revision).read_bytes(), commit.encode())
        snapshot = folder / "snapshots" / commit
        there = sorted(str(path.relative_to(snapshot)) for path in snapshot.rglob("*")
                       if not path.is_dir())
        self.assertEqual(there, sorted(names))
        for name in names:
            link, data = snapshot / name, self.repos[repo][name]
            target = os.readlink(link)
            self.assertEqual(os.path.normpath(link.parent / target),
                             str(folder / "blobs" / etag_of(name, data)))
            self.assertFalse(os.path.isabs(target))
            self.assertEqual(link.read_bytes(), data)
        self.assertEqual({path.name for path in (folder / "blobs").iterdir()},
                         {etag_of(name, self.repos[repo][name]) for name in names})

    # ---- what comes

    def test_AFreshDownloadOfTheDefaultQuantIsInTheLayoutThatHubToolsShare(self):
        result = self.inspect("org/quants")
        self.assert_ok(result)
        self.assertIn(b"downloading m-Q4_K_M.gguf (45.0 KiB)", result.stderr)
        self.assert_layout("org/quants", ["m-Q4_K_M.gguf"])

    def test_AQuantIsChosenByNameInAnyCase(self):
        self.assert_ok(self.inspect("org/quants:q8_0"))
        self.assert_layout("org/quants", ["m-Q8_0.gguf"])

    def test_AQuantThatIsNotThereIsRefusedWithThoseThatAre(self):
        self.assert_fails(self.inspect("org/quants:Q5_0"), 1, "org/quants", "'Q5_0'",
                          "there are Q4_K_M, Q8_0")
        self.assertFalse(self.repo_folder("org/quants").exists())

    def test_AFolderComesWithItsShardsAndNothingElse(self):
        result = self.inspect("org/folder")
        self.assert_ok(result)
        self.assertEqual(json.loads(result.stdout)["metadata"]["general.name"],
                         "org/folder")
        self.assert_layout("org/folder", ["config.json", "generation_config.json",
                                          "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "model.safetensors.index.json"])

    def test_ASplitModelComesWhole(self):
        self.repos["org/split"] = {f"Q8_0/m-0000{part}-of-00002.gguf": b"part %d" % part
                                   for part in (1, 2)}
        self.assert_fails(self.inspect("org/split:Q8_0"), 1, "m-00001-of-00002.gguf")  # no GGUF
        self.assert_layout("org/split", list(self.repos["org/split"]))

    def test_EveryCommandThatTakesAModelTakesOneOfAHub(self):
        words = ("generate", "-hf", "org/quants:Q8_0", "-p", "abc", "-n", "4", "--temp", "0")
        fetched = run(*words, **self.variables())
        self.assert_ok(fetched)
        local = run("generate", "-m", self.model, *words[3:])
        self.assertEqual(fetched.stdout, local.stdout)
        self.assert_ok(run("tokenize", "-hf", "org/quants:Q8_0", stdin="a", **self.variables()))
        self.assert_ok(run("tokenize", "-m", "org/quants:Q8_0", stdin="a", **self.variables()))
        self.assert_fails(run("tokenize", "-m", self.model, "-hf", "org/quants", **self.variables()),
                          1, "-m and -hf")
        # The command line goes over the environment.
        self.assert_ok(run("tokenize", "-m", self.model, stdin="a",
                           **self.variables(KVRM_HF_REPO="no/such")))

    # ---- revisions

    def test_ARevisionIsABranchATagAPullRequestOrACommit(self):
        other = "f" * 40
        self.hub.revisions |= {"v1.0": COMMIT, "refs/pr/3": other}
        self.assert_ok(self.inspect("org/quants@v1.0:Q8_0"))
        self.assert_layout("org/quants", ["m-Q8_0.gguf"], "v1.0")
        self.assertFalse((self.repo_folder("org/quants") / "refs" / "main").exists())
        self.assert_ok(self.inspect("org/quants@refs/pr/3:Q8_0"))
        self.assertIn("/api/models/org/quants/revision/refs%2Fpr%2F3",
                      [asked.path for asked in self.hub.asked])
        self.assert_layout("org/quants", ["m-Q8_0.gguf"], "refs/pr/3", other)
        self.assertEqual(len(self.hub.gets("files")), 1)  # the same bytes are one blob
        self.assert_ok(self.inspect(f"org/folder@{other}"))
        self.assertFalse((self.repo_folder("org/folder") / "refs" / other).exists())
        self.assertTrue((self.repo_folder("org/folder") / "snapshots" / other).is_dir())

    def test_ARevisionIsSaidBesideTheRepositoryOrByAnOptionOfItsOwn(self):
        self.hub.revisions["v2"] = other = "e" * 40
        words = ("inspect", "--json", "-hf", "org/quants:Q8_0")
        for option in (("--hf-revision", "v2"), ("--revision", other)):
            self.assert_ok(run(*words, *option, **self.variables()))
        self.assert_layout("org/quants", ["m-Q8_0.gguf"], "v2", other)
        self.assert_ok(self.inspect("org/quants:Q8_0", KVRM_HF_REVISION="v2"))
        self.assertNotIn("/api/models/org/quants/revision/main",
                         [asked.path for asked in self.hub.asked])
        twice = run("inspect", "-hf", "org/quants@v1", "--hf-revision", "v2", **self.variables())
        self.assert_fails(twice, 1, "org/quants@v1", "--hf-revision v2")
        self.assert_fails(run(*words, "--hf-revision", "../v2", **self.variables()), 1,
                          "--hf-revision '../v2'")
        self.assert_fails(run("inspect", "-m", self.model, "--hf-revision", "v2"), 1, "--hf-revision",
                          "ORG/REPO@REVISION")

    def test_ARevisionThatIsNotThereIsNamed(self):
        self.assert_fails(self.inspect("org/quants@v9"), 1, "org/quants@v9", "HTTP 404",
                          "no such branch, tag or commit")
        self.assert_fails(self.inspect("org/quants@v9", HF_HUB_OFFLINE="1"), 1,
                          "org/quants@v9: not in the cache")

    def test_WhatARevisionFetchedIsFoundAndListedWithoutTheHub(self):
        self.hub.revisions["v2"] = "e" * 40
        self.assert_ok(self.inspect("org/quants@v2:Q8_0"))
        self.hub.asked.clear()
        self.assert_ok(self.inspect("org/quants@v2:Q8_0", HF_HUB_OFFLINE="1"))
        self.assert_ok(run("inspect", "-m", "org/quants@v2:Q8_0", **self.variables()))
        listed = run("models", "--json", **self.variables(XDG_CACHE_HOME=str(self.home)))
        self.assert_ok(listed)
        self.assertEqual([model["name"] for model in json.loads(listed.stdout)["installed"]],
                         ["org/quants@v2:Q8_0"])
        self.assertEqual(self.hub.asked, [])

    # ---- what is there already

    def test_WhatTheCacheHasIsNotFetchedAgain(self):
        self.assert_ok(self.inspect("org/folder"))
        self.hub.asked.clear()
        result = self.inspect("org/folder")
        self.assert_ok(result)
        self.assertEqual([asked.path for asked in self.hub.asked],
                         ["/api/models/org/folder/revision/main"])
        self.assertEqual(result.stderr, b"")

    def test_OfflineNothingIsAskedAndWhatIsMissingIsSaid(self):
        self.assert_fails(self.inspect("org/quants", HF_HUB_OFFLINE="1"), 1, "org/quants",
                          "not in the cache", "HF_HUB_OFFLINE")
        self.assert_ok(self.inspect("org/quants"))
        self.hub.asked.clear()
        self.assert_ok(self.inspect("org/quants", HF_HUB_OFFLINE="1"))
        self.assert_fails(self.inspect("org/quants:Q8_0", HF_HUB_OFFLINE="1"), 1, "'Q8_0'",
                          "there are Q4_K_M")
        self.assertEqual(self.hub.asked, [])

    def test_WhereTheHubCannotBeReachedTheCacheServesWithANote(self):
        unreachable = "http://127.0.0.1:9"  # discard, which nobody serves
        self.assert_fails(self.inspect("org/quants", HF_ENDPOINT=unreachable), 1, unreachable,
                          "connect")
        self.assert_ok(self.inspect("org/quants"))
        result = self.inspect("org/quants", HF_ENDPOINT=unreachable)
        self.assert_ok(result)
        self.assertIn(b"taking what the cache has", result.stderr)

    def test_FilesThatAHubToolPutThereAreTaken(self):
        data = self.repos["org/quants"]["m-Q8_0.gguf"]
        folder = self.repo_folder("org/quants")
        snapshot, blob = folder / "snapshots" / COMMIT, folder / "blobs" / etag_of("x.gguf", data)
        snapshot.mkdir(parents=True)
        blob.parent.mkdir()
        blob.write_bytes(data)
        (snapshot / "m-Q8_0.gguf").symlink_to(os.path.relpath(blob, snapshot))
        self.assert_ok(self.inspect("org/quants:Q8_0"))
        self.assertEqual(self.hub.gets("files"), [])

    # ---- what goes wrong on the way

    def test_ALineThatIsCutIsTakenUpAgainWhereItBroke(self):
        size = len(self.repos["org/quants"]["m-Q8_0.gguf"])
        self.hub.pieces = [1000, 1]
        self.assert_ok(self.inspect("org/quants:Q8_0"))
        self.assertEqual([asked.range for asked in self.hub.gets("files")],
                         [None, "bytes=1000-", "bytes=1001-"])
        self.assertGreater(size, 1001)
        self.assert_layout("org/quants", ["m-Q8_0.gguf"])

    def test_AnInterruptedDownloadGoesOnWithTheNextRun(self):
        self.hub.pieces = [1000, 0]
        self.assert_fails(self.inspect("org/quants:Q8_0"), 1, "org/quants", "m-Q8_0.gguf",
                          "1000 of ", "the same command goes on")
        self.assertEqual(len(self.leftovers("org/quants")), 1)
        self.hub.asked.clear()
        self.assert_ok(self.inspect("org/quants:Q8_0"))
        self.assertEqual([asked.range for asked in self.hub.gets("files")], ["bytes=1000-"])
        self.assert_layout("org/quants", ["m-Q8_0.gguf"])

    def test_AHostThatKnowsNoRangesIsReadFromTheBeginning(self):
        self.hub.pieces, self.hub.ranges = [1000], False
        self.assert_ok(self.inspect("org/quants:Q8_0"))
        self.assert_layout("org/quants", ["m-Q8_0.gguf"])

    def test_AWrongChecksumIsSaidAndTheBytesAreRemoved(self):
        data = self.repos["org/quants"]["m-Q8_0.gguf"]
        self.hub.announced["m-Q8_0.gguf"] = ("0" * 64, len(data))
        self.assert_fails(self.inspect("org/quants:Q8_0"), 1, "org/quants", "m-Q8_0.gguf",
                          etag_of("x.gguf", data), "must be " + "0" * 64, "removed")
        self.assertEqual(list(self.repo_folder("org/quants").glob("blobs/*")), [])
        self.assertFalse((self.repo_folder("org/quants") / "refs" / "main").exists())

    def test_AnotherSizeThanAnnouncedIsRefused(self):
        data = self.repos["org/quants"]["m-Q8_0.gguf"]
        self.hub.announced["m-Q8_0.gguf"] = (etag_of("x.gguf", data), len(data) - 1)
        self.assert_fails(self.inspect("org/quants:Q8_0"), 1, "m-Q8_0.gguf",
                          f"has {len(data)} bytes, announced were {len(data) - 1}")

    def test_AFileThatTheDiskCannotHoldIsRefusedBeforeItIsFetched(self):
        self.hub.announced["m-Q8_0.gguf"] = ("0" * 64, 10**17)
        self.assert_fails(self.inspect("org/quants:Q8_0"), 1, "m-Q8_0.gguf",
                          "100000000000000000 bytes are to come, the disk has")
        self.assertEqual(self.hub.gets("files"), [])

    def test_AWriteThatTheSystemRefusesIsSaid(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        result = subprocess.run([PROGRAM, "inspect", "-hf", "org/quants:Q8_0"], capture_output=True,
                                env=environment(**self.variables()), preexec_fn=limit, timeout=240)
        self.assert_fails(result, 1, "m-Q8_0.gguf", "cannot write", "after 1000 of ")

    # ---- who may read

    def test_TheTokenGoesToTheHubAndToNobodyElse(self):
        self.hub.token = "hf_abc"
        self.assert_ok(self.inspect("org/quants:Q8_0", HF_TOKEN="hf_abc"))
        self.assertEqual({asked.token for asked in self.hub.asked if asked.host == "hub"},
                         {"Bearer hf_abc"})
        self.assertEqual({asked.token for asked in self.hub.asked if asked.host == "files"}, {None})

    def test_TheTokenOfALoginIsTaken(self):
        self.hub.token = "hf_login"
        (self.home / "token").write_text("hf_login\n")
        self.assert_ok(self.inspect("org/quants:Q8_0"))

    def test_AGatedRepositorySaysWhatToDo(self):
        self.hub.token = "hf_abc"
        self.assert_fails(self.inspect("org/quants"), 1, "org/quants", "HTTP 401", "gated",
                          "set HF_TOKEN")
        self.assert_fails(self.inspect("org/quants", HF_TOKEN="hf_wrong"), 1, "HTTP 401", "gated",
                          "the token of HF_TOKEN may not")

    def test_ATokenThatWouldForgeAHeaderIsRefused(self):
        for token in ("a\r\nX: y", "a b", "\u00e9"):
            self.assert_fails(self.inspect("org/quants", HF_TOKEN=token), 1, "HF_TOKEN")
        self.assertEqual(self.hub.asked, [])

    def test_StatusesAreSaidWithRepositoryAndHost(self):
        host = self.hub.url
        self.assert_fails(self.inspect("org/none"), 1, "org/none", "HTTP 404", host,
                          "no such repository")
        for status, word in ((403, "HF_TOKEN"), (404, "not found"), (429, "too many requests"),
                             (503, "HTTP 503")):
            self.hub.refusal = (status, "", b"{}")
            self.assert_fails(self.inspect("org/quants"), 1, "org/quants", f"HTTP {status}", host,
                              word)

    # ---- a hub that means harm

    def test_NamesThatLeadOutOfTheFolderAreRefused(self):
        for name in ("../m.gguf", "/m.gguf", "a/../../m.gguf", "a\\m.gguf", "m\n.gguf"):
            self.hub.names = [name]
            self.assert_fails(self.inspect("org/quants"), 1, "org/quants", "no path within a folder")
        self.assertFalse((self.home / "hub").exists())

    def test_AnIndexThatNamesFilesElsewhereIsRefused(self):
        self.repos["org/folder"]["model.safetensors.index.json"] = json.dumps(
            {"weight_map": {"w": "../../x.safetensors"}}).encode()
        self.assert_fails(self.inspect("org/folder"), 1, "model.safetensors.index.json",
                          "'../../x.safetensors'")

    def test_AnEtagIsNeverAPath(self):
        self.hub.announced["m-Q8_0.gguf"] = ("../../../etag", 1)
        self.assert_fails(self.inspect("org/quants:Q8_0"), 1, "m-Q8_0.gguf", "no usable ETag")

    def test_AnswersThatAreNoneAreRefused(self):
        self.hub.refusal = (200, "", b"<html>")
        self.assert_fails(self.inspect("org/quants"), 1, "org/quants", "no JSON object")
        self.hub.refusal = None
        self.hub.elsewhere = "ftp://127.0.0.1/m"
        self.assert_fails(self.inspect("org/quants"), 1, "m-Q4_K_M.gguf", "redirect", "ftp://")
        self.hub.elsewhere = self.hub.url + "/org/quants/resolve/" + COMMIT + "/m-Q4_K_M.gguf"
        self.assert_fails(self.inspect("org/quants"), 1, "m-Q4_K_M.gguf", "more than ten")

    def test_RepositoryNamesThatAreNoneAreRefusedBeforeAnythingIsAsked(self):
        for spec in ("quants", "a/b/c", "../quants", "org/quants:", "org/quants:../m", "org/a?b"):
            self.assert_fails(self.inspect(spec), 1, "-hf", "ORG/REPO[@REVISION][:QUANT]")
        self.assertEqual(self.hub.asked, [])
        self.assert_fails(self.inspect("org/quants", HF_ENDPOINT="hub"), 1, "HF_ENDPOINT")

    def test_AProxyIsAskedForWhatIsNotExemptFromIt(self):
        plain = {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": self.hub.url}
        self.assert_fails(self.inspect("org/quants", **plain, no_proxy="invalid"), 1,
                          "http://hub.invalid", "find the host")
        self.assert_fails(self.inspect("org/none", **plain), 1, "org/none", "HTTP 404")
        self.assertEqual(self.hub.asked[-1].path,
                         "http://hub.invalid/api/models/org/none/revision/main")

    def test_AProxyIsToldWhoAsksAndNobodyElseIs(self):
        self.hub.proxy_login = "Basic dTpwQHE="  # u:p@q
        address = self.hub.url.removeprefix("http://")
        plain = {"HF_ENDPOINT": "http://hub.invalid", "no_proxy": "127.0.0.1"}
        named = f"http://u:p%40q@{address}"
        self.assert_ok(self.inspect("org/quants:Q8_0", HTTP_PROXY=named, **plain))
        through = [asked for asked in self.hub.asked if asked.path.startswith("http://")]
        self.assertEqual({asked.login for asked in through}, {"Basic dTpwQHE="})
        direct = self.hub.gets("files")
        self.assertEqual([asked.login for asked in direct], [None])
        refused = self.inspect("org/none", http_proxy=f"http://u:secret@{address}", **plain)
        self.assert_fails(refused, 1, "HTTP 407", "the proxy wants a user name")
        self.assertNotIn(b"secret", refused.stderr)

    # ---- TLS

    def test_ACertificateIsCheckedAgainstTheHostAndThoseWhoAreTrusted(self):
        pair = [self.home / "hub.key", self.home / "hub.crt"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", pair[0],
                        "-out", pair[1], "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        both = self.home / "both.pem"
        both.write_bytes(pair[0].read_bytes() + pair[1].read_bytes())
        with Hub(self.repos, certificate=both) as hub:
            trusted = {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": str(pair[1])}
            self.assert_ok(self.inspect("org/quants:Q8_0", **trusted))
            self.assert_layout("org/quants", ["m-Q8_0.gguf"])
            self.assert_fails(self.inspect("org/folder", HF_ENDPOINT=hub.url), 1, hub.url,
                              "certificate was refused")
            by_number = hub.url.replace("localhost", "127.0.0.1")
            self.assert_fails(self.inspect("org/folder", **{**trusted, "HF_ENDPOINT": by_number}), 1,
                              by_number, "certificate was refused")
            tunnelled = self.inspect("org/folder", **trusted, https_proxy=hub.proxy_url)
            self.assert_ok(tunnelled)
            self.assertIn(f"localhost:{hub.url.rsplit(':', 1)[1]}",
                          {asked.path for asked in hub.asked if asked.host == "proxy"})
            hub.proxy_login = "Basic dTpw"  # u:p
            refused = self.inspect("org/quants:Q8_0", **trusted, HTTPS_PROXY=hub.proxy_url)
            self.assertIn(b"HTTP 407: it wants a user name", refused.stderr)
            named = hub.proxy_url.replace("http://", "http://u:p@")
            self.assert_ok(self.inspect("org/quants@main:Q4_K_M", **trusted, HTTPS_PROXY=named))
            self.assertEqual({asked.login for asked in hub.asked if asked.host != "proxy"}, {None})
            shutil.rmtree(self.repo_folder("org/quants"))
            hub.elsewhere = self.hub.url + "/plain"
            self.assert_fails(self.inspect("org/quants:Q4_K_M", **trusted), 1, "is not encrypted")


if __name__ == "__main__":
    main()
