"""One row of a comparison on OpenVINO GenAI, which has no benchmark program of its own for GGUF files.

Decode: B sequences of distinct random tokens, L of them in the cache when the clock starts, then N
steps of continuous batching. Prefill: one prompt of L tokens, its first token being the end of it.
Prints one JSON object: tokens_per_s (the median of the repeats), samples, versions. The package's
scheduler, cache format and kernels are its defaults; the cache is as large as the row needs (in
whole GiB, as the package counts), or grows.
"""

import argparse
import json
import random
import statistics
import time

import numpy
import openvino
import openvino_genai

VOCABULARY = range(1000, 40000)  # ordinary words of the default model
BATCHED_TOKENS = 2048


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-np", "--sequences", type=int, default=1)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("-n", "--steps", type=int, default=128)
    parser.add_argument("-p", "--prefill", type=int, default=0, help="time a prompt of so many tokens")
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("--grow", action="store_true", help="a cache that grows as it is filled")
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(1)
        self.next_id = 0
        scheduler = openvino_genai.SchedulerConfig()
        rows = args.prefill + 8 if args.prefill else args.sequences * (args.depth + args.steps + 8)
        if not args.grow:
            scheduler.cache_size = max(1, -(-rows * 40_000 // 2**30))  # GiB; 40 kB a token is ample
        scheduler.max_num_seqs = max(args.sequences, 1)
        scheduler.max_num_batched_tokens = max(args.prefill, BATCHED_TOKENS)
        scheduler.enable_prefix_caching = False
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads})

    def add(self, num_tokens, max_new):
        ids = numpy.array([self.random.choices(VOCABULARY, k=num_tokens)], dtype=numpy.int64)
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_new
        config.ignore_eos = True
        config.do_sample = False
        self.next_id += 1
        return self.pipeline.add_request(self.next_id, openvino.Tensor(ids), config)

    def finish(self):
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()

    def decode(self):
        args = self.args
        # Whole prompts first: a sequence has its first token once it can be read. The first ones
        # decode while the last prompts are read, so they are allowed more tokens than are timed.
        spare = 8 + 2 * args.sequences * args.depth // BATCHED_TOKENS
        handles = [self.add(max(args.depth, 1), args.steps + spare) for _ in range(args.sequences)]
        waiting = set(range(len(handles)))
        while waiting:
            self.pipeline.step()
            waiting -= {i for i in waiting if handles[i].can_read()}
        for handle in handles:
            while handle.can_read():
                handle.read()
        begin = time.perf_counter()
        for _ in range(args.steps):
            self.pipeline.step()
        seconds = time.perf_counter() - begin
        made = 0
        for handle in handles:
            while handle.can_read():
                made += sum(len(out.generated_ids) for out in handle.read().values())
        self.finish()
        if made != args.steps * args.sequences:
            raise SystemExit(f"{made} tokens in {args.steps} steps of {args.sequences} sequences: "
                             "a step is not a token of each")
        return made / seconds

    def prefill(self):
        handle = self.add(self.args.prefill, 1)
        begin = time.perf_counter()
        while not handle.can_read():
            self.pipeline.step()
        seconds = time.perf_counter() - begin
        self.finish()
        return self.args.prefill / seconds


def main():
    args = arguments()
    bench = Bench(args)
    row = bench.prefill if args.prefill else bench.decode
    row()  # the first call of a shape compiles kernels
    samples = [row() for _ in range(args.repetitions)]
    print(json.dumps({
        "tokens_per_s": statistics.median(samples),
        "samples": samples,
        "openvino_genai": openvino_genai.get_version(),
    }))


if __name__ == "__main__":
    main()
