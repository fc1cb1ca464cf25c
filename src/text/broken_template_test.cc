// One broken source a check, named after it; the fuzz target begins with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/broken_corpus.h"
#include "text/chat_template.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

// Their messages behind the place.
constexpr testing::BrokenFile kBrokenTemplates[] = {
    {"output_without_end", "{{ without }}"},
    {"tag_without_end", "{% without %}"},
    {"comment_without_end", "{# without #}"},
    {"character_unexpected", "unexpected character \"@\""},
    {"string_without_end", "a string without its closing quote"},
    {"string_escape_octal", "string escape \\1 is not supported"},
    {"string_escape_line_end", "a backslash at the end of a line is not supported"},
    {"string_escape_too_short", "a string escape of too few digits"},
    {"string_escape_no_character", "a string escape that is no character"},
    {"number_with_exponent", "a number with an exponent or in another base is not supported"},
    {"block_without_end", "a block without {% endif %}"},
    {"end_closes_nothing", "{% endif %} closes nothing"},
    {"statement_unknown", "statement \"include\" is not supported"},
    {"statement_no_name", "expected a statement, found an integer"},
    {"tag_end_missing", "expected %}, found \"b\""},
    {"output_end_missing", "expected }}, found \"b\""},
    {"break_outside_a_loop", "{% break %} outside a loop"},
    {"break_from_within_a_value", "{% break %} outside a loop"},
    {"loop_variable_no_name", "expected a loop variable, found an integer"},
    {"loop_without_in", "expected \"in\", found %}"},
    {"loop_recursive", "a recursive loop is not supported"},
    {"set_no_name", "expected a variable's name, found an integer"},
    {"set_attribute_no_name", "expected an attribute's name, found a string"},
    {"set_block_of_an_attribute", "a {% set %} block of an attribute is not supported"},
    {"set_of_several_attributes", "{% set %} of several attributes is not supported"},
    {"set_many_no_name", "expected a variable's name, found an integer"},
    {"set_many_without_value", "expected \"=\", found %}"},
    {"macro_no_name", "expected a macro's name, found \"(\""},
    {"macro_without_brackets", "expected \"(\", found %}"},
    {"macro_parameter_no_name", "expected a parameter's name, found an integer"},
    {"macro_brackets_open", "expected \")\", found \"b\""},
    {"function_unknown", "function \"f\" is not supported"},
    {"expression_missing", "expected an expression, found }}"},
    {"expression_of_a_reserved_word", "expected an expression, found \"if\""},
    {"not_without_in", "expected \"in\" after \"not\", found \"b\""},
    {"comparisons_in_a_chain", "a chain of comparisons (a < b < c) is not supported"},
    {"operator_power", "operator \"**\" is not supported"},
    {"integer_past_64_bits", "an integer over 64 bits is not supported"},
    {"brackets_not_closed", "expected \")\", found an integer"},
    {"list_not_closed", "expected \"]\", found an integer"},
    {"dict_key_no_string", "a dict key of type integer is not supported"},
    {"dict_without_colon", "expected \":\", found \"}\""},
    {"dict_not_closed", "expected \"}\", found a string"},
    {"call_of_no_name", "a call of something that is no name is not supported"},
    {"attribute_no_name", "expected an attribute's name, found a string"},
    {"index_missing", "expected an index, found \"]\""},
    {"index_of_several_parts", "an index of several parts is not supported"},
    {"index_not_closed", "expected \"]\", found an integer"},
    {"nested_too_deep", "brackets and blocks are nested deeper than 48 levels"},
    {"operators_past_200", "an expression of over 200 operators in a row"},
    {"filter_no_name", "expected a filter's name, found an integer"},
    {"filter_unknown", "filter \"nosuch\" is not supported"},
    {"test_no_name", "expected a test's name, found an integer"},
    {"test_unknown", "test \"nosuch\" is not supported"},
    {"method_unknown", "method \"nosuch\" is not supported"},
    {"selectattr_without_attribute",
     "filter \"selectattr\" without an attribute's name is not supported"},
    {"map_with_another_argument", "filter \"map\" with argument other is not supported"},
    {"map_without_argument", "filter \"map\" lacks an argument"},
    {"select_with_a_computed_name", "filter \"select\" with a computed name is not supported"},
    {"select_by_an_unknown_test", "test \"nosuch\" is not supported"},
    {"map_by_an_unknown_filter", "filter \"nosuch\" is not supported"},
    {"argument_without_a_name_after_one", "an argument without a name after one with a name"},
    {"argument_unpacked", "unpacking of arguments is not supported"},
    {"arguments_not_closed", "expected \")\", found an integer"},
    {"argument_one_too_many", "filter \"upper\" with so many arguments is not supported"},
    {"argument_unknown", "filter \"tojson\" with argument default is not supported"},
    {"argument_missing", "filter \"replace\" lacks an argument"},
};

TEST(BrokenTemplate, EachSourceIsRefusedByTheCheckItIsNamedAfter) {
  testing::ExpectEachRefusedByItsCheck(
      "template/broken", ".jinja", kBrokenTemplates,
      [](const std::string& name, const std::string& source) -> std::string {
        const auto parsed = ChatTemplate::Parse(source);
        if (parsed.ok()) return "";
        const std::string& message = parsed.error().message;
        const std::string place = "chat template, line 1: ";
        EXPECT_TRUE(message.starts_with(place)) << name << ": " << message;
        EXPECT_TRUE(IsValidUtf8(message)) << name;
        return message.substr(std::min(place.size(), message.size()));
      },
      testing::Said::kAll);
}

}  // namespace
}  // namespace kvrm
