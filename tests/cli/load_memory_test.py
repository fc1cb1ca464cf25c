"""What a load takes of memory, in a process of its own: no more than the larger of file and weights,
and a tenth."""

import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from model_folder import Sizes, shapes, write_config
from program import main

LOAD_MEMORY = os.environ.get("KVRM_LOAD_MEMORY", "")
MOST = 1.10
LARGE = Sizes(hidden=1024, ffn=3072, layers=4, heads=16, vocab=8192, context=512)


# The default model; the other, whose vocabulary is large for its size, where it was got.
FILES = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")


def model_paths():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return [path for path in (cache / "kvrm" / "models" / name for name in FILES) if path.is_file()]


def write_folder(folder):
    """A llama of 130 MB in BF16 whose weights are zeros: holes of the file, read like any other."""
    write_config(folder, LARGE)
    header, end = {}, 0
    for name, shape in shapes(LARGE).items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


class RealLoadMemory(unittest.TestCase):

    def assert_bounded(self, model, weights):
        result = subprocess.run([LOAD_MEMORY, model, weights], capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        load = json.loads(result.stdout)
        self.assertGreater(load["peak_bytes"], load["weight_bytes"])  # it was measured
        self.assertLessEqual(load["share"], MOST, load)

    def test_AFolderIsNeverInMemoryBesideItsWeights(self):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(pathlib.Path(folder))
            for weights in ("auto", "f32", "q4"):
                with self.subTest(weights):
                    self.assert_bounded(folder, weights)

    def test_AFileIsNeverInMemoryBesideItsWeights(self):
        if not model_paths():
            self.skipTest("the default model is not installed")
        for path in model_paths():
            for weights in ("auto", "f32"):
                with self.subTest(path.name, weights=weights):
                    self.assert_bounded(path, weights)


if __name__ == "__main__":
    main()
