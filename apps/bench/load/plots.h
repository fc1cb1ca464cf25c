// What pages of results are made of: escaped text, a frame, plots as inline SVG. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load/percentiles.h"

namespace kvrm::cli {

std::string EscapedHtml(std::string_view text);
// A page that needs nothing else, without scripts; `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// The share of samples at or above a value, both axes logarithmic, one curve each: where
// percentiles end, the tail goes on. Empty ones are left out; "" without any.
using NamedSamples = std::pair<std::string, const Distribution*>;
std::string TailPlot(const std::string& title, std::vector<NamedSamples> curves);

}  // namespace kvrm::cli
