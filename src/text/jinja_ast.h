// A parsed template: plain data, immutable once the parser is done. Names of filters, tests,
// methods and functions are resolved here already, so that rendering meets nothing unknown.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_builtins.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

enum class ExprKind : uint8_t {
  kLiteral,      // value
  kName,         // name
  kList,         // args
  kTuple,        // args
  kDict,         // args: key, value, key, value, ...
  kAttribute,    // args[0] . name
  kIndex,        // args[0] [ args[1] ]
  kSlice,        // args[0] [ args[1] : args[2] : args[3] ]; each of the three may be null
  kBuiltin,      // builtin (a filter, test or method) over args; a null argument was not given
  kCall,         // name (args); arg_names beside them, empty = positional
  kNot,          // not args[0]
  kNegate,       // - args[0]
  kAnd,          // args[0] and args[1]
  kOr,           // args[0] or args[1]
  kBinary,       // args[0] op args[1]
  kPick,         // pick over args[0]: filters select, reject, map and their like
  kConditional,  // args[0] if args[1] else args[2]; args[2] may be null
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kConcat,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

enum class Pick : uint8_t {
  kKeep,  // items for which the test builtin(item, args[1], ...) holds; null: true ones
  kDrop,  // the others
  kMap,   // builtin(item, args[1], ...), a filter; null: item, args[1] where that is undefined
};

struct Expr {
  ExprKind kind;
  Operator op = Operator::kAdd;
  uint32_t line = 0;
  uint32_t depth = 1;  // levels of the tree below, this one included
  Value value;
  std::string name;
  const Builtin* builtin = nullptr;
  Pick pick = Pick::kKeep;  // kPick; `name`: what of each item is looked at, empty = itself
  std::vector<ExprPtr> args;
  std::vector<std::string> arg_names;
};

struct Stmt;
using Block = std::vector<Stmt>;

enum class StmtKind : uint8_t {
  kText,      // text
  kOutput,    // expr
  kIf,        // branches
  kFor,       // names in expr if condition: body, else otherwise
  kSet,       // names[0] (. names[1] of a namespace) = expr
  kSetBlock,  // names[0] = what body prints; with expr, that over kCaptured
  kSetMany,   // names = expr, which is unpacked
  kScope,     // body, with variables of its own
  kFilter,    // expr over kCaptured, what body prints
  kMacro,     // macro names[0](names[1], ...) with defaults: body
  kBreak,
  kContinue,
};

// The name of what a block printed, inside its filters. No template can write it.
inline constexpr const char* kCaptured = "";

struct Branch;

struct Stmt {
  StmtKind kind;
  uint32_t line = 0;
  std::string text;
  std::vector<std::string> names;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<ExprPtr> defaults;  // kMacro: one a parameter, null = none
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
};

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

}  // namespace kvrm::jinja
