// Attention, one thread, SmolLM2-135M's heads (9 query, 3 KV, 64 wide): decode rows of 1, 8 and 32
// sequences, and a prompt's rows in tiles of four, over fp16 and int8 pages, for chunks of 128, 256
// and 512 tokens. Decode cycles through copies of the cache (the layers of a step), so that it is
// read from memory.
//
// `token` = seconds per row and token; `bytes` = bytes of K and V read per second.
#include <string>
#include <vector>

#include "attention_chunk.h"
#include "ops_bench.h"
#include "tensor/encoding.h"
#include "tensor/kv_tile.h"

namespace kvrm::bench {
namespace {

constexpr uint32_t kHeads = 9;
constexpr uint32_t kKvHeads = 3;
constexpr uint32_t kHeadDim = 64;
constexpr size_t kColdBytes = size_t{96} << 20;

using AttentionFn = void (*)(const ops::AttentionArgs&, uint32_t, ops::Scratch);
struct Chunk {
  uint32_t tokens;
  AttentionFn run;
};
constexpr Chunk kChunks[] = {
    {128, AttentionChunk128}, {256, AttentionChunk256}, {512, AttentionChunk512}};

// `batch` sequences of `context` tokens; of each the last `rows` tokens are computed.
struct Load {
  uint32_t batch;
  uint32_t context;
  uint32_t rows;
  KvFormat format;
};

// fp16 values near 1; or any codes, with scales near 1/128.
void FillPages(KvFormat format, size_t num_pages, std::byte* pages) {
  const KvTile tile = KvTileOf(format, kHeadDim);
  for (size_t head = 0; head < num_pages * kKvHeads; ++head, pages += tile.head_bytes) {
    for (size_t i = 0; i < tile.head_bytes; i += 2) {
      const bool scale = i >= tile.scales_begin && i < tile.v_begin;
      pages[i] = static_cast<std::byte>((head + i) * 37 >> 3);
      pages[i + 1] = format == KvFormat::kF16 ? std::byte{0x3B}
                     : scale                  ? std::byte{0x20}
                                              : static_cast<std::byte>((head + i) * 29 >> 2);
    }
  }
}

void Attention(benchmark::State& state, Load load, Chunk chunk) {
  const uint32_t pages = (load.context + ops::kPageTokens - 1) / ops::kPageTokens;
  const size_t page_bytes = kKvHeads * KvTileOf(load.format, kHeadDim).head_bytes;
  const size_t layer_bytes = size_t{load.batch} * pages * page_bytes;
  const size_t layers = std::max<size_t>(1, kColdBytes / layer_bytes);
  AlignedBytes cache(layers * layer_bytes);
  FillPages(load.format, layers * layer_bytes / page_bytes, cache.data());
  std::vector<Segment> segments(size_t{load.batch} * pages);
  std::vector<uint32_t> num_segments(load.batch, 1);
  std::vector<Row> rows;
  std::vector<ops::AttentionTask> tasks;
  for (uint32_t slot = 0; slot < load.batch; ++slot) {
    segments[size_t{slot} * pages] = {.offset_bytes = size_t{slot} * pages * page_bytes,
                                      .num_pages = pages};
    for (uint32_t r = 0; r < load.rows; ++r) {
      if (r % ops::kFloatTaskRows == 0) {
        tasks.push_back(
            {.row_begin = static_cast<uint32_t>(rows.size()),
             .num_rows = static_cast<uint16_t>(std::min(ops::kFloatTaskRows, load.rows - r)),
             .slot = static_cast<uint16_t>(slot),
             .kv_head_end = kKvHeads,
             .chunk_end = (load.context + chunk.tokens - 1) / chunk.tokens,
             .split = kNone32,
             .out_begin = static_cast<uint32_t>(rows.size())});
      }
      rows.push_back(
          {.slot = static_cast<uint16_t>(slot), .kv_index = load.context - load.rows + r});
    }
  }
  const uint32_t width = kHeads * kHeadDim;
  std::vector<float> q(rows.size() * width);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) * 0.01f;
  const ActivationLayout layout{width};
  AlignedBytes out(rows.size() * layout.row_bytes());
  AlignedBytes scratch(1 << 20);
  ops::AttentionArgs args{};
  args.q = q.data();
  args.q_stride = width;
  args.rows = rows.data();
  args.tasks = tasks.data();
  args.segments = segments.data();
  args.num_segments = num_segments.data();
  args.max_pages = pages;
  args.page_bytes = page_bytes;
  args.format = load.format;
  args.num_heads = kHeads;
  args.num_kv_heads = kKvHeads;
  args.head_dim = kHeadDim;
  args.scale = 0.125f;
  args.kind = ops::ActivationKind::kInt8;
  args.out = out.data();
  args.out_stride = layout.row_bytes();
  size_t layer = 0;
  for (auto _ : state) {
    args.kv_base = cache.data() + layer * layer_bytes;
    layer = layer + 1 == layers ? 0 : layer + 1;
    for (uint32_t t = 0; t < tasks.size(); ++t) chunk.run(args, t, {scratch.data(), 1 << 20});
    benchmark::ClobberMemory();
  }
  double row_tokens = 0;
  for (const Row& row : rows) row_tokens += row.kv_index + 1;
  const auto calls = static_cast<double>(state.iterations());
  state.counters["token"] = benchmark::Counter(
      row_tokens * calls, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes"] = benchmark::Counter(
      static_cast<double>(tasks.size()) * static_cast<double>(pages * page_bytes) * calls,
      benchmark::Counter::kIsRate);
}

const bool kRegistered = [] {
  const auto add = [](Chunk chunk, KvFormat format) {
    for (uint32_t context : {512u, 2048u}) {
      for (Load load :
           {Load{1, context, 1, format}, Load{8, context, 1, format}, Load{32, context, 1, format},
            Load{1, context, 4, format}, Load{1, context, 512, format}}) {
        const std::string name =
            std::string("attention/kv:") + (format == KvFormat::kF16 ? "f16" : "int8") +
            "/chunk:" + std::to_string(chunk.tokens) + "/batch:" + std::to_string(load.batch) +
            "/context:" + std::to_string(context) + "/rows:" + std::to_string(load.rows);
        ReportExtremes(benchmark::RegisterBenchmark(name.c_str(), Attention, load, chunk));
      }
    }
  };
  for (Chunk chunk : kChunks) {
    add(chunk, KvFormat::kF16);
    add(chunk, KvFormat::kInt8);
  }
  return true;
}();

}  // namespace
}  // namespace kvrm::bench
