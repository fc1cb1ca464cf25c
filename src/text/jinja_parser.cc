#include "text/jinja_parser.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja_expr_parser.h"
#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)), exprs_(cursor_) {}

  Result<Block> Run() {
    KVRM_ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    for (const ExprParser::Call& call : exprs_.macro_calls()) {
      if (macros_.contains(call.name)) continue;
      return AtLine(call.line, ErrorKind::kUnsupported,
                    "function \"" + ForMessage(call.name) + "\"");
    }
    return block;
  }

 private:
  using Ends = std::vector<std::string_view>;

  // Statements up to a tag {% word ... with a word of `ends`, of which {% and the word are taken
  // (the word is in `end_word_`); with no `ends`, up to the end of the source.
  Result<Block> ParseBlock(const Ends& ends) {
    KVRM_RETURN_IF_ERROR(cursor_.Enter());
    const uint32_t begin_line = cursor_.now().line;
    Block block;
    for (;;) {
      if (cursor_.now().kind == TokenKind::kEnd) {
        if (ends.empty()) break;
        return AtLine(begin_line, ErrorKind::kInvalidInput,
                      "a block without {% " + std::string(ends.back()) + " %}");
      }
      Token token = cursor_.Take();
      if (token.kind == TokenKind::kText) {
        block.push_back(
            {.kind = StmtKind::kText, .line = token.line, .text = std::move(token.text)});
      } else if (token.kind == TokenKind::kOutputBegin) {
        KVRM_ASSIGN_OR_RETURN(ExprPtr expr, exprs_.Parse());
        block.push_back({.kind = StmtKind::kOutput, .line = token.line, .expr = std::move(expr)});
        if (cursor_.now().kind != TokenKind::kOutputEnd) return cursor_.Unexpected("}}");
        cursor_.Take();
      } else {
        KVRM_ASSIGN_OR_RETURN(std::string word, cursor_.ExpectName("a statement"));
        if (std::ranges::find(ends, word) != ends.end()) {
          end_word_ = std::move(word);
          break;
        }
        KVRM_ASSIGN_OR_RETURN(Stmt stmt, ParseStatement(word, token.line));
        block.push_back(std::move(stmt));
      }
    }
    cursor_.Leave();
    return block;
  }

  Status ExpectBlockEnd() {
    if (cursor_.now().kind != TokenKind::kBlockEnd) return cursor_.Unexpected("%}");
    cursor_.Take();
    return Ok();
  }

  Result<Stmt> ParseStatement(const std::string& word, uint32_t line) {
    if (word == "if") return ParseIf(line);
    if (word == "for") return ParseFor(line);
    if (word == "set") return ParseSet(line);
    if (word == "macro") return ParseMacro(line);
    if (word == "filter") return ParseFilterBlock(line);
    if (word == "generation") return ParseGeneration(line);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) return cursor_.Invalid("{% " + word + " %} outside a loop");
      KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
      return Stmt{.kind = word == "break" ? StmtKind::kBreak : StmtKind::kContinue, .line = line};
    }
    if (word.starts_with("end") || word == "else" || word == "elif") {
      return AtLine(line, ErrorKind::kInvalidInput,
                    "{% " + ForMessage(word) + " %} closes nothing");
    }
    return AtLine(line, ErrorKind::kUnsupported, "statement \"" + ForMessage(word) + "\"");
  }

  Result<Stmt> ParseIf(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kIf, .line = line};
    for (end_word_ = "elif"; end_word_ != "endif";) {
      Branch branch;
      const bool is_else = end_word_ == "else";
      if (!is_else) {
        KVRM_ASSIGN_OR_RETURN(branch.condition, exprs_.Parse());
      }
      KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
      const Ends ends = is_else ? Ends{"endif"} : Ends{"elif", "else", "endif"};
      KVRM_ASSIGN_OR_RETURN(branch.body, ParseBlock(ends));
      stmt.branches.push_back(std::move(branch));
    }
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  Result<Stmt> ParseFor(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kFor, .line = line};
    do {
      KVRM_ASSIGN_OR_RETURN(std::string name, cursor_.ExpectName("a loop variable"));
      stmt.names.push_back(std::move(name));
    } while (cursor_.TakeIfOp(","));
    if (!cursor_.TakeIfName("in")) return cursor_.Unexpected("\"in\"");
    KVRM_ASSIGN_OR_RETURN(stmt.expr, exprs_.ParseWithoutConditional());
    if (cursor_.TakeIfName("if")) {
      KVRM_ASSIGN_OR_RETURN(stmt.condition, exprs_.Parse());
    }
    if (cursor_.IsName("recursive")) return cursor_.NotSupported("a recursive loop");
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    KVRM_ASSIGN_OR_RETURN(stmt.body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (end_word_ == "else") {
      KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
      KVRM_ASSIGN_OR_RETURN(stmt.otherwise, ParseBlock({"endfor"}));
    }
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  Result<Stmt> ParseSet(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kSet, .line = line};
    KVRM_ASSIGN_OR_RETURN(std::string name, cursor_.ExpectName("a variable's name"));
    stmt.names.push_back(std::move(name));
    if (cursor_.TakeIfOp(".")) {
      KVRM_ASSIGN_OR_RETURN(std::string attribute, cursor_.ExpectName("an attribute's name"));
      stmt.names.push_back(std::move(attribute));
    }
    if (cursor_.IsOp(",")) return ParseSetMany(std::move(stmt));
    if (cursor_.TakeIfOp("=")) {
      KVRM_ASSIGN_OR_RETURN(stmt.expr, ParseMaybeTuple());
      KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
      return stmt;
    }
    stmt.kind = StmtKind::kSetBlock;
    if (cursor_.TakeIfOp("|")) {
      KVRM_ASSIGN_OR_RETURN(stmt.expr, exprs_.ParseCapturedFilters());
    }
    if (stmt.names.size() > 1) return cursor_.NotSupported("a {% set %} block of an attribute");
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    KVRM_ASSIGN_OR_RETURN(stmt.body, ParseBodyOutsideLoops({"endset"}));
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  Result<Stmt> ParseSetMany(Stmt stmt) {
    stmt.kind = StmtKind::kSetMany;
    if (stmt.names.size() > 1) return cursor_.NotSupported("{% set %} of several attributes");
    while (cursor_.TakeIfOp(",")) {
      KVRM_ASSIGN_OR_RETURN(std::string name, cursor_.ExpectName("a variable's name"));
      stmt.names.push_back(std::move(name));
    }
    KVRM_RETURN_IF_ERROR(cursor_.ExpectOp("="));
    KVRM_ASSIGN_OR_RETURN(stmt.expr, ParseMaybeTuple());
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  // What `set` takes: an expression, or several with commas between them.
  Result<ExprPtr> ParseMaybeTuple() {
    KVRM_ASSIGN_OR_RETURN(ExprPtr value, exprs_.Parse());
    if (!cursor_.IsOp(",")) return value;
    Expr tuple{.kind = ExprKind::kTuple, .line = cursor_.now().line};
    tuple.depth = value->depth + 1;
    tuple.args.push_back(std::move(value));
    while (cursor_.TakeIfOp(",") && cursor_.now().kind != TokenKind::kBlockEnd) {
      KVRM_ASSIGN_OR_RETURN(ExprPtr next, exprs_.Parse());
      tuple.depth = std::max(tuple.depth, next->depth + 1);
      tuple.args.push_back(std::move(next));
    }
    return ExprPtr(std::make_unique<const Expr>(std::move(tuple)));
  }

  Result<Stmt> ParseFilterBlock(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kFilter, .line = line};
    KVRM_ASSIGN_OR_RETURN(stmt.expr, exprs_.ParseCapturedFilters());
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    KVRM_ASSIGN_OR_RETURN(stmt.body, ParseBodyOutsideLoops({"endfilter"}));
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  // Marks what the model is trained on; renders as if it were not there.
  Result<Stmt> ParseGeneration(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kScope, .line = line};
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    KVRM_ASSIGN_OR_RETURN(stmt.body, ParseBodyOutsideLoops({"endgeneration"}));
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  Result<Stmt> ParseMacro(uint32_t line) {
    Stmt stmt{.kind = StmtKind::kMacro, .line = line};
    KVRM_ASSIGN_OR_RETURN(std::string name, cursor_.ExpectName("a macro's name"));
    macros_.insert(name);
    stmt.names.push_back(std::move(name));
    KVRM_RETURN_IF_ERROR(cursor_.ExpectOp("("));
    while (!cursor_.IsOp(")")) {
      KVRM_ASSIGN_OR_RETURN(std::string parameter, cursor_.ExpectName("a parameter's name"));
      stmt.names.push_back(std::move(parameter));
      ExprPtr value;
      if (cursor_.TakeIfOp("=")) {
        KVRM_ASSIGN_OR_RETURN(value, exprs_.Parse());
      }
      stmt.defaults.push_back(std::move(value));
      if (!cursor_.TakeIfOp(",")) break;
    }
    KVRM_RETURN_IF_ERROR(cursor_.ExpectOp(")"));
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    KVRM_ASSIGN_OR_RETURN(stmt.body, ParseBodyOutsideLoops({"endmacro"}));
    KVRM_RETURN_IF_ERROR(ExpectBlockEnd());
    return stmt;
  }

  // A break inside such a body would leave a loop around it from within a value.
  Result<Block> ParseBodyOutsideLoops(const Ends& ends) {
    const uint32_t loops = std::exchange(loops_, 0);
    KVRM_ASSIGN_OR_RETURN(Block body, ParseBlock(ends));
    loops_ = loops;
    return body;
  }

  Cursor cursor_;
  ExprParser exprs_;
  std::set<std::string, std::less<>> macros_;
  std::string end_word_;
  uint32_t loops_ = 0;  // around the current place
};

}  // namespace

Result<Block> Parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).Run(); }

}  // namespace kvrm::jinja
