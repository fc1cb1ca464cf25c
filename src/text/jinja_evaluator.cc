#include "text/jinja_evaluator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/jinja_lexer.h"
#include "text/jinja_print.h"

namespace kvrm::jinja {
namespace {

// Adds the line to a message, once: the innermost place counts.
Error WithLine(const Error& error, uint32_t line) {
  if (error.message.starts_with("chat template")) return error;
  return AtLine(line, ErrorKind::kInvalidInput, error.message);
}

}  // namespace

Evaluator::Evaluator(std::optional<int64_t> now) : now_(now) {
  for (const char* name : {"namespace", "raise_exception", "range"}) {
    SetGlobal(name, Value(Macro{nullptr}));
  }
  if (now_) SetGlobal("strftime_now", Value(Macro{nullptr}));
}

const Value* Evaluator::Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->values_.find(name);
    if (found != scope->values_.end()) return &found->second;
  }
  return nullptr;
}

Result<Text> Evaluator::Run(const Block& block) {
  Scope scope(&globals_);
  macro_scope_ = &scope;
  Text out;
  KVRM_RETURN_IF_ERROR(Exec(block, scope, out));
  return out;
}

Result<Evaluator::Flow> Evaluator::Exec(const Block& block, Scope& scope, Text& out) {
  const DepthGuard guard(depth_);
  KVRM_RETURN_IF_ERROR(guard.Check());
  for (const Stmt& stmt : block) {
    Result<Flow> flow = ExecOne(stmt, scope, out);
    if (!flow.ok()) return WithLine(flow.error(), stmt.line);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecOne(const Stmt& stmt, Scope& scope, Text& out) {
  KVRM_RETURN_IF_ERROR(budget_.Spend(1));
  switch (stmt.kind) {
    case StmtKind::kText:
      KVRM_RETURN_IF_ERROR(budget_.MakeText(stmt.text.size(), out.size()));
      out.Append(stmt.text, /*from_user=*/false);
      return Flow::kNext;
    case StmtKind::kOutput: {
      KVRM_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr, scope));
      KVRM_RETURN_IF_ERROR(Print(value, budget_, out));
      return Flow::kNext;
    }
    case StmtKind::kIf:
      return ExecIf(stmt, scope, out);
    case StmtKind::kFor:
      return ExecFor(stmt, scope, out);
    case StmtKind::kSet:
      return ExecSet(stmt, scope);
    case StmtKind::kSetMany: {
      KVRM_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr, scope));
      KVRM_RETURN_IF_ERROR(BindTargets(stmt, value, scope));
      return Flow::kNext;
    }
    case StmtKind::kSetBlock: {
      KVRM_ASSIGN_OR_RETURN(Value value, Capture(stmt, scope));
      scope.Set(stmt.names[0], std::move(value));
      return Flow::kNext;
    }
    case StmtKind::kFilter: {
      KVRM_ASSIGN_OR_RETURN(const Value value, Capture(stmt, scope));
      KVRM_RETURN_IF_ERROR(Print(value, budget_, out));
      return Flow::kNext;
    }
    case StmtKind::kScope: {
      Scope inner(&scope);
      return Exec(stmt.body, inner, out);
    }
    case StmtKind::kMacro:
      scope.Set(stmt.names[0], Value(Macro{&stmt}));
      return Flow::kNext;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  KVRM_CHECK(false, "every kind of statement is handled");
}

Result<Evaluator::Flow> Evaluator::ExecIf(const Stmt& stmt, Scope& scope, Text& out) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition != nullptr) {
      KVRM_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition, scope));
      if (!condition.IsTrue()) continue;
    }
    return Exec(branch.body, scope, out);
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecFor(const Stmt& stmt, Scope& scope, Text& out) {
  KVRM_ASSIGN_OR_RETURN(const Value over, Eval(*stmt.expr, scope));
  KVRM_ASSIGN_OR_RETURN(std::shared_ptr<const List> items, Iterate(over, budget_));
  if (stmt.condition != nullptr) {
    List kept;
    for (const Value& item : items->items) {
      Scope round(&scope);
      KVRM_RETURN_IF_ERROR(BindTargets(stmt, item, round));
      KVRM_ASSIGN_OR_RETURN(const Value keep, Eval(*stmt.condition, round));
      if (keep.IsTrue()) kept.items.push_back(item);
    }
    items = std::make_shared<const List>(std::move(kept));
  }
  for (size_t i = 0; i < items->items.size(); ++i) {
    Scope round(&scope);
    KVRM_RETURN_IF_ERROR(BindTargets(stmt, items->items[i], round));
    round.Set("loop", Value(std::make_shared<const Loop>(Loop{items, i})));
    KVRM_ASSIGN_OR_RETURN(const Flow flow, Exec(stmt.body, round, out));
    if (flow == Flow::kBreak) break;
  }
  if (items->items.empty()) return Exec(stmt.otherwise, scope, out);
  return Flow::kNext;
}

Status Evaluator::BindTargets(const Stmt& stmt, const Value& item, Scope& scope) {
  KVRM_RETURN_IF_ERROR(budget_.Spend(2));
  if (stmt.names.size() == 1) {
    scope.Set(stmt.names[0], item);
    return Ok();
  }
  if (item.AsList() == nullptr || item.AsList()->items.size() != stmt.names.size()) {
    return InvalidInput(std::string("cannot unpack a ") + item.TypeName() + " into " +
                        std::to_string(stmt.names.size()) + " variables");
  }
  for (size_t i = 0; i < stmt.names.size(); ++i) scope.Set(stmt.names[i], item.AsList()->items[i]);
  return Ok();
}

Result<Evaluator::Flow> Evaluator::ExecSet(const Stmt& stmt, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr, scope));
  if (stmt.names.size() == 1) {
    scope.Set(stmt.names[0], std::move(value));
    return Flow::kNext;
  }
  const Value* target = scope.Find(stmt.names[0]);
  Namespace* names = target == nullptr ? nullptr : target->AsNamespace();
  if (names == nullptr) {
    return InvalidInput("set " + stmt.names[0] + "." + stmt.names[1] + ": " + stmt.names[0] +
                        " is no namespace");
  }
  if (value.AsNamespace() != nullptr || value.AsLoop() != nullptr) {
    return InvalidInput(std::string("a namespace cannot hold a ") + value.TypeName());
  }
  KVRM_RETURN_IF_ERROR(budget_.Spend(names->items.size()));
  if (Value* existing = names->Find(stmt.names[1])) {
    *existing = std::move(value);
  } else {
    names->items.emplace_back(stmt.names[1], std::move(value));
  }
  return Flow::kNext;
}

// What the body prints, through the filters of the block where it has some.
Result<Value> Evaluator::Capture(const Stmt& stmt, Scope& scope) {
  Scope inner(&scope);
  Text text;
  KVRM_RETURN_IF_ERROR(Exec(stmt.body, inner, text));
  if (stmt.expr == nullptr) return Value(std::move(text));
  Scope filters(&scope);
  filters.Set(kCaptured, Value(std::move(text)));
  return Eval(*stmt.expr, filters);
}

Result<Value> Evaluator::CallMacro(const Stmt& macro, const Expr& call, Scope& scope) {
  const size_t num_parameters = macro.names.size() - 1;
  if (call.args.size() > num_parameters) {
    return InvalidInput("macro " + macro.names[0] + " takes " + std::to_string(num_parameters) +
                        " arguments");
  }
  KVRM_ASSIGN_OR_RETURN(std::vector<Value> args, EvalArgs(call, scope, 0));
  std::vector<std::optional<Value>> bound(num_parameters);
  for (size_t i = 0; i < args.size(); ++i) {
    size_t place = i;
    if (!call.arg_names[i].empty()) {
      const auto found =
          std::ranges::find(macro.names.begin() + 1, macro.names.end(), call.arg_names[i]);
      place = static_cast<size_t>(found - macro.names.begin()) - 1;
    }
    if (place >= num_parameters || bound[place].has_value()) {
      return InvalidInput("macro " + macro.names[0] + ": argument " + call.arg_names[i]);
    }
    bound[place] = std::move(args[i]);
  }
  // A macro sees what the whole template sees, not the place that calls it.
  Scope inner(macro_scope_);
  for (size_t i = 0; i < num_parameters; ++i) {
    if (!bound[i].has_value() && macro.defaults[i] != nullptr) {
      KVRM_ASSIGN_OR_RETURN(bound[i], Eval(*macro.defaults[i], inner));
    }
    inner.Set(macro.names[i + 1], bound[i].value_or(Value()));
  }
  Text out;
  KVRM_RETURN_IF_ERROR(Exec(macro.body, inner, out));
  return Value(std::move(out));
}

}  // namespace kvrm::jinja
