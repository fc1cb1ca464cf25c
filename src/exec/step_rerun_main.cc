// Re-runs a dumped step in a process of its own: step_rerun MODEL.gguf DUMP OUT KV THREADS.
// OUT receives the logits of the step's wanted rows, then the page bytes. Law I1, purity.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "exec/cpu_executor.h"
#include "exec/step_dump.h"
#include "pager/pager.h"

namespace kvrm {
namespace {

std::vector<std::byte> ReadAll(const char* path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

Status Rerun(const char* model_path, const char* dump_path, const char* out_path, KvFormat format,
             uint32_t threads) {
  KVRM_ASSIGN_OR_RETURN(auto file, GgufFile::Open(model_path));
  KVRM_ASSIGN_OR_RETURN(auto model, Model::Load(*file, {}));
  KVRM_ASSIGN_OR_RETURN(auto geometry, KvGeometryOf(model->config(), format));
  const std::vector<std::byte> dump = ReadAll(dump_path);
  KVRM_ASSIGN_OR_RETURN(auto step, LoadedStep::Parse(dump, geometry));
  PagerConfig pager_config;  // a pager for its memory alone
  pager_config.geometry = geometry;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    pager_config.kv_bytes += step.range_bytes(g) + geometry.groups[g].superblock_bytes;
  }
  pager_config.max_seq_tokens = model->config().max_context;
  KVRM_ASSIGN_OR_RETURN(auto pager, Pager::Create(pager_config));
  WorkerPool pool(threads);
  CpuExecutorConfig config;
  config.geometry = geometry;
  config.max_slots = 8;
  config.max_seq_tokens = model->config().max_context;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) config.kv_base[g] = pager->base(g);
  KVRM_ASSIGN_OR_RETURN(auto executor, CreateCpuExecutor(*model, config, pool));
  executor->WarmUp();
  step.RestorePages(config.kv_base);
  const FrameView view = step.View();
  const StepResult result = executor->Replay(view);
  std::ofstream out(out_path, std::ios::binary);
  for (uint32_t i = 0; i < view.head->num_logits; ++i) {
    const float* row = result.logits + size_t{i} * result.logits_stride;
    out.write(reinterpret_cast<const char*>(row),
              static_cast<std::streamsize>(model->config().vocab * sizeof(float)));
  }
  const std::vector<std::byte> pages = step.ReadPages(config.kv_base);
  out.write(reinterpret_cast<const char*>(pages.data()),
            static_cast<std::streamsize>(pages.size()));
  return Ok();
}

}  // namespace
}  // namespace kvrm

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: step_rerun MODEL.gguf DUMP OUT f32|f16|int8 THREADS\n");
    return 2;
  }
  const std::string kv = argv[4];
  const kvrm::KvFormat format = kv == "f32"    ? kvrm::KvFormat::kF32
                                : kv == "int8" ? kvrm::KvFormat::kInt8
                                               : kvrm::KvFormat::kF16;
  const auto threads = static_cast<uint32_t>(std::atoi(argv[5]));
  const kvrm::Status status = kvrm::Rerun(argv[1], argv[2], argv[3], format, threads);
  if (status.ok()) return 0;
  std::fprintf(stderr, "step_rerun: %s\n", status.error().message.c_str());
  return 1;
}
