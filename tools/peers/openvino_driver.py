"""OpenVINO GenAI's continuous batching behind pipes: it has no server of its own for GGUF files.

Standard input, a JSON object a line: {"add": ID, "tokens": [...], "max_new": N, "ignore_eos": true}
or {"stop": ID}. Standard output: {"ready": VERSION} once, then after each step that gave tokens or
ended a request {"us": T, "out": [[ID, TOKENS, END], ...]}: T is the monotonic clock at the step's
end, END is "" while the request goes on. The end of the input ends the program.

One thread, one loop: take what has come, step, tell. Nothing is tokenized here.
"""

import argparse
import json
import os
import random
import select
import sys
import time

import numpy
import openvino
import openvino_genai

BYTES_OF_A_TOKEN = 40_000  # of keys and values of the default model, amply
WARM_UP_ID = 2**40  # and up; the ids of requests are lower
FINISH = {
    openvino_genai.GenerationFinishReason.LENGTH: "length",
    openvino_genai.GenerationFinishReason.STOP: "stop",
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-np", "--sequences", type=int, default=16)
    parser.add_argument("-c", "--context", type=int, default=4096, help="tokens of one sequence")
    parser.add_argument("-b", "--budget", type=int, default=0,
                        help="tokens of a step; 0: the package's default")
    parser.add_argument("--cold", action="store_true",
                        help="ready when the pipeline is made: no kernel has been compiled")
    return parser.parse_args()


class Driver:
    def __init__(self, args):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = -(-args.sequences * args.context * BYTES_OF_A_TOKEN // 2**30)  # GiB
        scheduler.max_num_seqs = args.sequences
        scheduler.enable_prefix_caching = False  # no two prompts of this load have a beginning in common
        if args.budget:
            scheduler.max_num_batched_tokens = args.budget
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads})
        self.handles = {}

    def add(self, number, tokens, max_new, ignore_eos):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_new
        config.ignore_eos = ignore_eos
        config.do_sample = False
        ids = numpy.array([tokens], dtype=numpy.int64)
        self.handles[number] = self.pipeline.add_request(number, openvino.Tensor(ids), config)

    def step(self):
        """One step; its time, and what each request has of it."""
        if self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        now_us = time.monotonic_ns() // 1000
        out = []
        for number, handle in list(self.handles.items()):
            tokens, reason = 0, None
            while handle.can_read():
                for output in handle.read().values():
                    tokens += len(output.generated_ids)
                    reason = FINISH.get(output.finish_reason, reason)
            end = ""
            status = handle.get_status()
            if status != openvino_genai.GenerationStatus.RUNNING:
                finished = status == openvino_genai.GenerationStatus.FINISHED
                end = (reason or "length") if finished else status.name.lower()
                del self.handles[number]
            if tokens or end:
                out.append([number, tokens, end])
        return now_us, out

    def warm_up(self, sequences):
        """Kernels are compiled at the first call of a shape: prompts alone, decoding, and both."""
        words = random.Random(1)
        for number in range(sequences):
            length = 1500 if number == 1 else 64
            self.add(WARM_UP_ID + number, words.choices(range(1000, 40000), k=length), 24, True)
        while self.handles:
            self.step()


def lines_of(pending, wait):
    """The whole lines that have come; None at the end of the input."""
    lines = []
    while select.select([0], [], [], None if wait and not lines else 0)[0]:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return None
        pending += chunk
        *whole, rest = bytes(pending).split(b"\n")
        pending[:] = rest
        lines += whole
    return lines


def main():
    args = arguments()
    driver = Driver(args)
    if not args.cold:
        driver.warm_up(min(args.sequences, 9))

    def tell(what):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    tell({"ready": "openvino-genai " + openvino_genai.get_version()})
    pending = bytearray()
    while (lines := lines_of(pending, wait=not driver.handles)) is not None:
        for line in lines:
            asked = json.loads(line)
            if "add" in asked:
                driver.add(asked["add"], asked["tokens"], asked["max_new"], asked["ignore_eos"])
            elif asked["stop"] in driver.handles:
                driver.handles[asked["stop"]].cancel()
        now_us, out = driver.step()
        if out:
            tell({"us": now_us, "out": out})


if __name__ == "__main__":
    main()
