#include "bench/versus_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load/plots.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

struct Bar {
  std::string row;  // "": the same as the bar above
  std::string family;
  double ratio = 0, at_least = 0, goal = 0;
  bool first_family = false;
};

double Number(const json::value& object, std::string_view key) {
  return object.at(key).to_number<double>();
}

std::vector<Bar> BarsOf(const json::array& sheet) {
  std::vector<Bar> bars;
  for (const json::value& row : sheet) {
    const json::value* families = row.as_object().if_contains("families");
    if (families == nullptr) continue;
    std::string name(row.at("row").as_string());
    for (const json::value& family : families->as_array()) {
      Bar bar;
      bar.row = std::exchange(name, "");
      bar.family = std::string(family.at("family").as_string());
      bar.ratio = Number(family, "ratio");
      bar.at_least = Number(family, "at_least");
      bar.goal = Number(family, "goal");
      bar.first_family = &family == families->as_array().data();
      bars.push_back(std::move(bar));
    }
  }
  return bars;
}

// In pixels.
constexpr int kNames = 330, kPlot = 420, kFigures = 70, kBarHeight = 16, kStep = 22, kTop = 34;

class Picture {
 public:
  explicit Picture(const std::vector<Bar>& bars) : bars_(bars) {
    for (const Bar& bar : bars) most_ = std::max({most_, bar.ratio, bar.goal});
  }

  std::string Svg() const {
    const int width = kNames + kPlot + kFigures;
    const int height = kTop + static_cast<int>(bars_.size()) * kStep + 12;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
        "fill=\"white\"/>\n<text x=\"8\" y=\"18\" font-weight=\"bold\">kvrm over the best of each "
        "family; | at least, ¦ goal</text>\n",
        width, height);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
        "stroke=\"#999\"/>\n",
        At(1), kTop - 6, height - 8);
    for (size_t i = 0; i < bars_.size(); ++i) svg += BarSvg(bars_[i], static_cast<int>(i));
    return svg + "</svg>\n";
  }

 private:
  double At(double ratio) const { return kNames + ratio / most_ * kPlot; }

  std::string Tick(double ratio, int top, const char* dashes) const {
    if (ratio == 0) return "";
    return fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"black\" "
        "stroke-width=\"2\" stroke-dasharray=\"{3}\"/>\n",
        At(ratio), top - 2, top + kBarHeight + 2, dashes);
  }

  std::string BarSvg(const Bar& bar, int index) const {
    const int top = kTop + index * kStep, base = top + kBarHeight - 4;
    std::string svg = fmt::format(
        "<text x=\"8\" y=\"{0}\">{1}</text>\n<text x=\"{2}\" y=\"{0}\" text-anchor=\"end\" "
        "fill=\"#555\">{3}</text>\n",
        base, EscapedHtml(bar.row), kNames - 8, EscapedHtml(bar.family));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                       kNames, top, At(bar.ratio) - kNames, kBarHeight,
                       bar.first_family ? "#4477aa" : "#cc8844");
    svg += Tick(bar.at_least, top, "none") + Tick(bar.goal, top, "3,2");
    return svg + fmt::format("<text x=\"{}\" y=\"{}\">{:.2f}x</text>\n", kNames + kPlot + 8, base,
                             bar.ratio);
  }

  const std::vector<Bar>& bars_;
  double most_ = 1;
};

}  // namespace

std::string VersusPlot(const json::array& sheet) {
  const std::vector<Bar> bars = BarsOf(sheet);
  return Picture(bars).Svg();
}

}  // namespace kvrm::cli
