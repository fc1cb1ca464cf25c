#include "text/jinja_sequences.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_access.h"
#include "text/jinja_args.h"

namespace kvrm::jinja {
namespace {

// What an item is ordered by: its attribute, in lower case unless case counts.
Result<Value> KeyOf(const Value& item, const Value& case_sensitive, const Value& attribute,
                    Budget& budget) {
  Value key = item;
  if (const Text* path = attribute.AsText()) {
    KVRM_ASSIGN_OR_RETURN(key, GetPath(item, path->bytes(), budget));
  } else if (const int64_t* index = attribute.AsInt()) {
    KVRM_ASSIGN_OR_RETURN(key, GetItem(item, Value(*index), budget));
  }
  if (key.AsText() != nullptr && !case_sensitive.IsTrue()) {
    KVRM_RETURN_IF_ERROR(budget.SpendText(key.AsText()->size()));
    return Value(ChangeCase(*key.AsText(), LetterCase::kLower));
  }
  return key;
}

struct Keyed {
  Value key;
  Value item;
  size_t place = 0;  // before the sort
};

Result<std::vector<Keyed>> KeyAll(const Value& input, const Value& case_sensitive,
                                  const Value& attribute, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(input, budget));
  std::vector<Keyed> keyed;
  keyed.reserve(list->items.size());
  for (const Value& item : list->items) {
    KVRM_RETURN_IF_ERROR(budget.Spend(1));
    KVRM_ASSIGN_OR_RETURN(Value key, KeyOf(item, case_sensitive, attribute, budget));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

// Stable, and in reverse stable too, as Python sorts.
Status SortKeyed(std::vector<Keyed>& keyed, bool reverse, Budget& budget) {
  std::optional<Error> error;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (error) return false;
    const auto order = reverse ? Compare(b.key, a.key, budget) : Compare(a.key, b.key, budget);
    if (!order.ok()) {
      error = order.error();
      return false;
    }
    return *order < 0 || (*order == 0 && a.place < b.place);
  };
  // What has no place in an order (two kinds of values, a float that is no number) is found here,
  // so that the sort itself meets an order.
  for (size_t i = 0; i < keyed.size(); ++i) {
    KVRM_RETURN_IF_ERROR(budget.Spend(1));
    keyed[i].place = i;
    less(keyed[0], keyed[i]);
    if (error) return *error;
    const double* real = keyed[i].key.AsFloat();
    if (real != nullptr && std::isnan(*real))
      return InvalidInput("sort: a float that is no number");
  }
  std::ranges::sort(keyed, less);
  if (error) return *error;
  return Ok();
}

Result<Value> ItemsOf(std::vector<Keyed> keyed, List::Kind kind = List::Kind::kList) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return MakeList(std::move(items), kind);
}

Result<Value> Extreme(const Value& input, Args args, bool wants_greater, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyAll(input, args[0], args[1], budget));
  if (keyed.empty()) return Value();
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    KVRM_ASSIGN_OR_RETURN(const std::partial_ordering order,
                          Compare(keyed[i].key, keyed[best].key, budget));
    if (wants_greater ? order > 0 : order < 0) best = i;
  }
  return keyed[best].item;
}

}  // namespace

Result<Value> DictSort(const Value& input, Args args, Budget& budget) {
  const Dict* dict = input.AsDict();
  if (dict == nullptr) return InvalidInput(std::string("dictsort: a ") + input.TypeName());
  const bool by_value = args[1].AsText() != nullptr && args[1].AsText()->bytes() == "value";
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : dict->items) {
    KVRM_RETURN_IF_ERROR(budget.Spend(2));
    KVRM_ASSIGN_OR_RETURN(Value order, KeyOf(by_value ? value : Value(key), args[0], {}, budget));
    KVRM_ASSIGN_OR_RETURN(Value pair, MakeList({Value(key), value}, List::Kind::kTuple));
    keyed.push_back({std::move(order), std::move(pair)});
  }
  KVRM_RETURN_IF_ERROR(SortKeyed(keyed, args[2].IsTrue(), budget));
  return ItemsOf(std::move(keyed));
}

Result<Value> Sort(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyAll(input, args[1], args[2], budget));
  KVRM_RETURN_IF_ERROR(SortKeyed(keyed, args[0].IsTrue(), budget));
  return ItemsOf(std::move(keyed));
}

Result<Value> Unique(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyAll(input, args[0], args[1], budget));
  std::vector<Keyed> kept;
  for (Keyed& entry : keyed) {
    bool known = false;
    for (size_t i = 0; i < kept.size() && !known; ++i) {
      KVRM_ASSIGN_OR_RETURN(known, Equal(kept[i].key, entry.key, budget));
    }
    if (!known) kept.push_back(std::move(entry));
  }
  return ItemsOf(std::move(kept), List::Kind::kGenerator);
}

Result<Value> Min(const Value& input, Args args, Budget& budget) {
  return Extreme(input, args, /*wants_greater=*/false, budget);
}

Result<Value> Max(const Value& input, Args args, Budget& budget) {
  return Extreme(input, args, /*wants_greater=*/true, budget);
}

Result<Value> Reverse(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(input, budget));
  KVRM_RETURN_IF_ERROR(budget.Spend(list->items.size()));
  std::vector<Value> items(list->items.rbegin(), list->items.rend());
  if (input.AsText() == nullptr) return MakeList(std::move(items));
  Text text;
  for (const Value& character : items) text.Append(*character.AsText());
  return Value(std::move(text));
}

}  // namespace kvrm::jinja
