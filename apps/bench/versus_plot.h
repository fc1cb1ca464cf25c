// A comparison as a picture: a bar for each row and family of rivals, as long as its ratio is
// large, with a tick where the ratio must be at least and one where it is to be. Made from the
// sheet's rows alone, like its tables. Pure.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace kvrm::cli {

// One SVG file, readable on white and on black. Rows in which less is better are left out.
std::string VersusPlot(const boost::json::array& sheet);

}  // namespace kvrm::cli
