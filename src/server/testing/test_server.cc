#include "server/testing/test_server.h"

#include "base/check.h"

namespace kvrm::testing {
namespace {

// One part, 16 token places of 8 bytes each a page.
KvGeometry SmallGeometry() {
  KvGeometry geometry;
  geometry.groups.push_back({.format = KvFormat::kF32,
                             .page_tokens = 16,
                             .num_parts = 1,
                             .part_page_bytes = 128,
                             .pages_per_superblock = 8,
                             .superblock_bytes = 1024});
  geometry.layer_group = {0};
  geometry.layer_part = {0};
  return geometry;
}

}  // namespace

std::unique_ptr<Engine> MakeCopyEngine(const TestOptions& options, Clock& clock, Gate& gate) {
  std::unique_ptr<Executor> executor = std::make_unique<CopyExecutor>(options.slots, gate);
  if (options.wrap) executor = options.wrap(std::move(executor));
  return MakeEngineOver(options, std::move(executor), clock);
}

std::unique_ptr<Engine> MakeEngineOver(const TestOptions& options,
                                       std::unique_ptr<Executor> executor, Clock& clock) {
  const KvGeometry geometry = SmallGeometry();
  auto pager = Pager::Create({.geometry = geometry,
                              .kv_bytes = uint64_t{options.pool_tokens} * 8,
                              .max_slots = options.slots,
                              .max_seq_tokens = options.max_seq_tokens});
  KVRM_CHECK(pager.ok(), "the tests' pager can be made");
  auto engine = Engine::Create({.max_slots = options.slots,
                                .max_seq_tokens = options.max_seq_tokens,
                                .max_queued = options.max_queued,
                                .mixed_prompt_rows = options.prompt_rows,
                                .max_itl_us = options.max_itl_us,
                                .prefix_cache = false,  // the copying executor reads no pages
                                .validate_each_step = options.validate,
                                .lossy_view = options.lossy_view},
                               std::move(pager).value(), std::move(executor), clock);
  KVRM_CHECK(engine.ok(), "the tests' engine can be made");
  return std::move(engine).value();
}

TestServer::TestServer(ServerConfig config, const TestOptions& options)
    : tokenizer_(MakeByteTokenizer()),
      chat_template_(MakeChatTemplate()),
      engine_(MakeCopyEngine(options, clock_, gate_)) {
  config.port = 0;
  config.log = [this, keep = options.keep_log](std::string_view line) {
    if (!keep) return;
    const std::lock_guard<std::mutex> lock(log_mutex_);
    log_.emplace_back(line);
  };
  auto server = Server::Bind(config);
  KVRM_CHECK(server.ok(), "a free port can be bound");
  server_ = std::move(server).value();
  if (options.attach) Attach();
  if (options.run_engine) engine_thread_ = std::thread([this] { engine_->Run(); });
}

void TestServer::Attach() {
  server_->Attach(*engine_, *tokenizer_, chat_template_.get(), "copy-model");
}

void TestServer::Stop() {
  gate_.Open();
  engine_->Stop();
  if (engine_thread_.joinable()) engine_thread_.join();
  server_->Stop();
}

std::vector<std::string> TestServer::log() {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  return log_;
}

}  // namespace kvrm::testing
