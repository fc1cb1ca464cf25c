#include "server/testing/test_server.h"

#include "base/check.h"

namespace kvrm::testing {
namespace {

// GPT-2's printable stand-in for a byte: itself where it prints, else from U+0100 on.
std::string ByteCharacter(int byte, int& next_free) {
  const bool prints =
      (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  const int code = prints ? byte : 0x100 + next_free++;
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

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

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

std::unique_ptr<const Tokenizer> MakeByteTokenizer() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  spec.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  spec.types.assign(3, TokenType::kControl);
  int next_free = 0;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteCharacter(byte, next_free));
    spec.types.push_back(TokenType::kNormal);
  }
  while (spec.tokens.size() < kTestVocab) {
    spec.tokens.push_back("<unused" + std::to_string(spec.tokens.size()) + ">");
    spec.types.push_back(TokenType::kUnused);
  }
  spec.eos = kTurnEnd;
  spec.bos = kTurnBegin;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  KVRM_CHECK(tokenizer.ok(), "the tests' vocabulary is a tokenizer");
  return std::move(tokenizer).value();
}

std::unique_ptr<const ChatTemplate> MakeChatTemplate() {
  auto parsed = ChatTemplate::Parse(kChatMl);
  KVRM_CHECK(parsed.ok(), "the tests' template can be parsed");
  return std::move(parsed).value();
}

std::unique_ptr<Engine> MakeCopyEngine(const TestOptions& options, Clock& clock, Gate& gate) {
  const KvGeometry geometry = SmallGeometry();
  auto pager = Pager::Create({.geometry = geometry,
                              .kv_bytes = uint64_t{options.pool_tokens} * 8,
                              .max_slots = options.slots,
                              .max_seq_tokens = options.max_seq_tokens});
  KVRM_CHECK(pager.ok(), "the tests' pager can be made");
  auto engine = Engine::Create({.max_slots = options.slots,
                                .max_seq_tokens = options.max_seq_tokens,
                                .max_queued = options.max_queued,
                                .mixed_prompt_rows = 16,
                                .prefix_cache = false,  // the copying executor reads no pages
                                .validate_each_step = true},
                               std::move(pager).value(),
                               std::make_unique<CopyExecutor>(options.slots, gate), clock);
  KVRM_CHECK(engine.ok(), "the tests' engine can be made");
  return std::move(engine).value();
}

TestServer::TestServer(ServerConfig config, const TestOptions& options)
    : tokenizer_(MakeByteTokenizer()),
      chat_template_(MakeChatTemplate()),
      engine_(MakeCopyEngine(options, clock_, gate_)) {
  config.port = 0;
  config.log = [this](std::string_view line) {
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
