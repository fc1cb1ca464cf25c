"""schemathesis, the command: requests made from /openapi.json, valid and not, on every route.

The server never fails (no 5xx), answers have the status, type and form that the document says, what
the document forbids is refused, and methods that a path has not are 405.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

URL = os.environ["KVRM_URL"]
# Numbers that belong to the model (ids of tokens, the context) stand in no document: a body that is
# right by its form may still be a 400.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400"]

[[operations]]
include-name = "GET /v1/models/{id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "404"]
"""

with tempfile.TemporaryDirectory() as folder:
    config = pathlib.Path(folder, "schemathesis.toml")
    config.write_text(CONFIG)
    command = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", config, "run",
               URL + "/openapi.json", "--checks", "all", "--max-examples", "25", "--seed", "1",
               "--generation-deterministic", "--no-color", "--request-timeout", "60"]
    result = subprocess.run(command, cwd=folder, timeout=580)
sys.exit(result.returncode)
