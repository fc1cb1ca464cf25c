// The tables of a comparison, made from its JSON rows alone: rows that an earlier run left look
// like those of this one. Pure.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace kvrm::cli {

// `loss` is the perplexity that each file type loses, as a share of f32's; empty: not measured.
std::string VersusText(const boost::json::array& sheet, const boost::json::object& loss);

}  // namespace kvrm::cli
