"""A browser (Chromium, driven by PyPI playwright): the server's own texts are shown without an
error, a page of its origin streams an answer, and a page of another origin reads nothing.
"""

import functools
import http.server
import os
import tempfile
import threading

from playwright.sync_api import sync_playwright

URL = os.environ["KVRM_URL"]
ASK = """async ([url, type]) => {
  const body = {prompt: 'One', max_tokens: 8, ignore_eos: true, temperature: 0, stream: true};
  const answer = await fetch(url + '/v1/completions', {
    method: 'POST', headers: {'Content-Type': type}, body: JSON.stringify(body)});
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  let text = '', writes = 0;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return {status: answer.status, text, writes};
    text += decoder.decode(value, {stream: true});
    ++writes;
  }
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(folder):
    """The URL of an empty page of an origin of its own."""
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://localhost:{server.server_port}/"


with tempfile.TemporaryDirectory() as empty, sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path="/usr/bin/chromium",
                                     args=["--no-sandbox", "--disable-dev-shm-usage"])
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(URL + "/version")
    assert "version" in page.locator("body").inner_text()
    assert errors == [], errors
    own = page.evaluate(ASK, [URL, "application/json"])  # a page of the server's own origin
    assert own["status"] == 200 and own["text"].endswith("data: [DONE]\n\n"), own
    page.goto(serve(empty))
    try:
        page.evaluate(ASK, [URL, "application/json"])
        raise SystemExit("a page of another origin has read an answer")
    except Exception as error:  # the browser kept it from the page
        assert "Failed to fetch" in str(error), error
    assert any("CORS" in text for text in errors), errors
    browser.close()
print("page: as it should be")
