// Runs a parsed template. One object per rendering; thread-compatible.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

// Counts the levels of evaluation, macros that call themselves included: the stack holds
// kMaxDepth of them with room to spare.
class DepthGuard {
 public:
  static constexpr uint32_t kMaxDepth = 600;

  explicit DepthGuard(uint32_t& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  Status Check() const {
    if (depth_ <= kMaxDepth) return Ok();
    return InvalidInput("evaluation deeper than " + std::to_string(kMaxDepth) + " levels");
  }

 private:
  uint32_t& depth_;
};

class Evaluator {
 public:
  // `now`: the time that strftime_now() prints, in seconds since 1970; none = there is no such
  // function.
  explicit Evaluator(std::optional<int64_t> now);

  void SetGlobal(std::string_view name, Value value) { globals_.Set(name, std::move(value)); }

  // What the template prints. `block` outlives the call. Errors name the line.
  Result<Text> Run(const Block& block);

 private:
  // Variables of one scope. A set statement writes to the innermost one: that of the loop round or
  // of the macro; an if statement has none of its own.
  class Scope {
   public:
    explicit Scope(const Scope* parent) : parent_(parent) {}
    void Set(std::string_view name, Value value) {
      values_.insert_or_assign(std::string(name), std::move(value));
    }
    const Value* Find(std::string_view name) const;

   private:
    const Scope* parent_;
    std::map<std::string, Value, std::less<>> values_;
  };
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Result<Flow> Exec(const Block& block, Scope& scope, Text& out);
  Result<Flow> ExecOne(const Stmt& stmt, Scope& scope, Text& out);
  Result<Flow> ExecIf(const Stmt& stmt, Scope& scope, Text& out);
  Result<Flow> ExecFor(const Stmt& stmt, Scope& scope, Text& out);
  Result<Flow> ExecSet(const Stmt& stmt, Scope& scope);
  Result<Value> Capture(const Stmt& stmt, Scope& scope);
  Result<Value> FormatNow(const std::vector<Value>& args);
  Status BindTargets(const Stmt& stmt, const Value& item, Scope& scope);

  Result<Value> Eval(const Expr& expr, Scope& scope);
  Result<Value> EvalDict(const Expr& expr, Scope& scope);
  Result<Value> EvalAttribute(const Expr& expr, Scope& scope);
  Result<Value> EvalIndex(const Expr& expr, Scope& scope);
  Result<Value> EvalSlice(const Expr& expr, Scope& scope);
  Result<Value> EvalBuiltin(const Expr& expr, Scope& scope);
  Result<Value> EvalPick(const Expr& expr, Scope& scope);
  Result<Value> EvalOrder(Operator op, const Value& left, const Value& right);
  Result<Value> EvalLogic(const Expr& expr, Scope& scope);
  Result<Value> EvalBinary(const Expr& expr, Scope& scope);
  Result<Value> EvalCall(const Expr& expr, Scope& scope);
  Result<Value> CallMacro(const Stmt& macro, const Expr& call, Scope& scope);
  Result<Value> CallFunction(const Expr& call, const std::vector<Value>& args);
  Result<Value> MakeRange(const std::vector<Value>& args);
  Result<std::vector<Value>> EvalArgs(const Expr& expr, Scope& scope, size_t first);

  Budget budget_;
  Scope globals_{nullptr};
  const Scope* macro_scope_ = nullptr;  // the variables of the template itself
  uint32_t depth_ = 0;                  // evaluations and blocks inside each other
  const std::optional<int64_t> now_;
};

}  // namespace kvrm::jinja
