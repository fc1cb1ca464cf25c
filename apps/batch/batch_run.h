// Answers the lines of a batch with one engine and no HTTP: the server's reading of requests, its
// service and its wording of answers, a window of requests at a time.
//
// Threads: Run's caller reads, tokenizes and writes; the engine runs on a thread of its own that
// Run starts and ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "batch/batch_files.h"
#include "batch/batch_line.h"
#include "server/service.h"

namespace kvrm::cli {

struct BatchCounts {
  uint64_t answered = 0;  // by this run, those with errors included
  uint64_t errors = 0;    // of these: status of 400 and more, and lines that are no request
  uint64_t skipped = 0;   // answered by an earlier run
};

class BatchRun final : private GenerationListener {
 public:
  // All outlive the run. `window`: requests submitted and not yet answered, at least 1.
  BatchRun(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
           const std::string& model_id, const RequestDefaults& defaults, uint32_t window);

  // Until every line is answered or `interrupted` says true; then what is open is given up and
  // stays unanswered. Calls `progress` with the share of the input that is answered, by bytes; 1
  // when it ends, however it does. Errors: a file
  // cannot be read or written; what was answered stays.
  Result<BatchCounts> Run(BatchInput& input, BatchOutput& output,
                          const std::function<bool()>& interrupted,
                          const std::function<void(double)>& progress);

 private:
  struct Open {
    uint64_t number = 0;
    std::string custom_id;
    std::shared_ptr<Generation> generation;
  };
  struct Pending {  // a request that found the engine's queue full
    uint64_t number = 0;
    BatchRequest request;
  };

  void OnOutput(Generation& generation) noexcept override;
  Status Fill(BatchInput& input, BatchOutput& output);
  Status TakeLine(const BatchInput::Line& line, BatchOutput& output);
  Status Submit(Pending pending, BatchOutput& output);
  Status Answer(BatchOutput& output, uint64_t number, const std::string& custom_id, int status,
                std::string_view body);
  Status Refuse(BatchOutput& output, uint64_t number, const BatchFault& fault);
  Status WriteFinished(BatchOutput& output);
  void AwaitEvents();
  double ShareAnswered(const BatchInput& input) const;

  Engine& engine_;
  const uint32_t window_;
  Service service_;
  std::unordered_map<const Generation*, Open> open_;
  std::vector<const Generation*> finished_;  // complete, not yet written
  std::unordered_set<std::string> seen_;     // custom_ids of this run
  std::optional<Pending> pending_;
  bool input_ended_ = false;
  BatchCounts counts_;

  std::mutex mutex_;
  std::condition_variable woken_;
  bool awake_ = false;  // guarded by mutex_
};

}  // namespace kvrm::cli
