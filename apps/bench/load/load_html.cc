// The page of a run: its tables, and three plots as inline SVG.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load/load_report.h"
#include "bench/load/plots.h"

namespace kvrm::cli {
namespace {

constexpr double kWidth = 860, kHeight = 300;                       // of a plot's frame, in pixels
constexpr double kLeft = 70, kTop = 20, kRight = 20, kBottom = 45;  // around it
constexpr const char* kColors[] = {"#1f6fb4", "#d1602b", "#3b8f4f",
                                   "#8a4fa3", "#a08a1c", "#444444"};

const char* Color(size_t i) { return kColors[i % std::size(kColors)]; }

// From values to pixels along one edge of the frame, linear or logarithmic (base 10).
struct Axis {
  double low, high;  // values at the ends; logarithmic: above 0
  double from, to;   // pixels there
  bool logarithmic;

  double At(double value) const {
    const double share =
        logarithmic ? std::log10(std::clamp(value, low, high) / low) / std::log10(high / low)
                    : (std::clamp(value, low, high) - low) / (high - low);
    return from + share * (to - from);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (logarithmic) {
      for (double tick = low; tick <= high * 1.001; tick *= 10) ticks.push_back(tick);
    } else {
      for (int i = 0; i <= 5; ++i) ticks.push_back(low + (high - low) * i / 5);
    }
    return ticks;
  }
};

// Whole powers of ten around the samples.
Axis LogAxis(double least, double most, double from, double to) {
  const double low = std::pow(10, std::floor(std::log10(std::max(least, 1e-3))));
  const double high = std::pow(10, std::ceil(std::log10(std::max(most, low * 1.01))));
  return {low, std::max(high, low * 10), from, to, true};
}
Axis XAxis(double most) { return {0, std::max(most, 1e-3), kLeft, kLeft + kWidth, false}; }

std::string Begin(const char* title, const Axis& x, const Axis& y, const char* x_name,
                  const char* y_name) {
  std::string svg = fmt::format("<h2>{}</h2>\n<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n",
                                title, kLeft + kWidth + kRight, kTop + kHeight + kBottom);
  for (double tick : x.Ticks()) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/><text x=\"{0:.1f}\" "
        "y=\"{3:.1f}\" text-anchor=\"middle\">{4:.4g}</text>\n",
        x.At(tick), kTop, kTop + kHeight, kTop + kHeight + 16, tick);
  }
  for (double tick : y.Ticks()) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}H{2:.1f}\"/><text x=\"{3:.1f}\" "
        "y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
        kLeft, y.At(tick), kLeft + kWidth, kLeft - 6, y.At(tick) + 4, tick);
  }
  return svg + fmt::format(
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
                   "<text x=\"{:.1f}\" y=\"12\">{}</text>\n",
                   kLeft + kWidth / 2, kTop + kHeight + 36, x_name, kLeft, y_name);
}

std::string Legend(const std::vector<std::string>& names) {
  std::string text = "<p>";
  for (size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("<span style=\"color:{}\">&#9632;</span> {} &nbsp; ", Color(i),
                        EscapedHtml(names[i]));
  }
  return text + "</p>\n";
}

// The share of samples above a value, both logarithmic: where percentiles end, the tail goes on.
std::string TailCurve(const Distribution& samples, const Axis& x, const Axis& y,
                      const char* color) {
  std::string path;
  double last_x = -1, last_y = -1;
  const double count = static_cast<double>(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const double at_x = x.At(std::max(samples.sorted()[i], x.low));
    const double at_y = y.At(std::max((count - static_cast<double>(i)) / count, y.low));
    const bool last = i + 1 == samples.size();
    if (!last && std::abs(at_x - last_x) < 0.5 && std::abs(at_y - last_y) < 0.5) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x, at_y);
    last_x = at_x;
    last_y = at_y;
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n", path,
                     color);
}

// TTFT (dots) and longest gap (rings) of each request where it was due.
std::string RequestPlot(const LoadReport& report, const LoadRun& run) {
  double least = 1e12, most = 0, last_s = 0;
  const auto due_s = [&](const RequestRecord& record) {
    return static_cast<double>(record.intended_us - run.start_us) / 1e6;
  };
  for (const RequestRecord& record : run.records) {
    for (const auto& ms : {TtftMs(record), LongestGapMs(record, run.start_us)}) {
      if (!ms) continue;
      least = std::min(least, *ms);
      most = std::max(most, *ms);
      last_s = std::max(last_s, due_s(record));
    }
  }
  if (most == 0) return "";
  const Axis x = XAxis(last_s), y = LogAxis(least, most, kTop + kHeight, kTop);
  std::string svg = Begin("Each request: TTFT (dot), longest gap (ring)", x, y,
                          "due, seconds since the start", "milliseconds");
  for (const RequestRecord& record : run.records) {
    const double at_x = x.At(due_s(record));
    if (const auto ms = TtftMs(record)) {
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x,
                         y.At(*ms), Color(record.source));
    }
    if (const auto ms = LongestGapMs(record, run.start_us)) {
      svg +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"none\" stroke=\"{}\"/>\n",
                      at_x, y.At(*ms), Color(record.source));
    }
  }
  std::vector<std::string> names;
  for (const Source& source : report.workload.sources) names.push_back(source.name);
  return svg + "</svg>\n" + Legend(names);
}

std::string RatePlot(const LoadFigures& figures) {
  if (figures.peak_tokens_per_s <= 0) return "";
  const Axis x = XAxis(figures.total_s);
  const Axis y = {0, figures.peak_tokens_per_s, kTop + kHeight, kTop, false};
  std::string svg = Begin("Output tokens/s", x, y, "seconds since the warm-up's end", "tokens/s");
  for (size_t i = 0; i < figures.tokens_by_part.size(); ++i) {
    const double left = x.At(static_cast<double>(i) * figures.part_s);
    const double right = x.At(static_cast<double>(i + 1) * figures.part_s);
    const double top = y.At(figures.tokens_by_part[i]);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "fill=\"{}\"/>\n",
        left, top, std::max(right - left - 0.5, 0.5), kTop + kHeight - top, Color(0));
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string EscapedHtml(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
         EscapedHtml(title) +
         "</title><style>body{font:15px sans-serif;max-width:980px;margin:2em auto;padding:0 1em}"
         "pre{overflow-x:auto;font-size:13px}svg{width:100%}svg text{font-size:12px;fill:#555}"
         ".grid{stroke:#ddd;fill:none}</style></head><body>\n<h1>" +
         EscapedHtml(title) + "</h1>\n" + body + "</body></html>\n";
}

std::string TailPlot(const std::string& title, std::vector<NamedSamples> curves) {
  std::erase_if(curves, [](const auto& curve) { return curve.second->empty(); });
  if (curves.empty()) return "";
  double least = 1e12, most = 0;
  size_t count = 1;
  std::vector<std::string> names;
  for (const auto& [name, samples] : curves) {
    least = std::min(least, samples->sorted().front());
    most = std::max(most, samples->sorted().back());
    count = std::max(count, samples->size());
    names.push_back(name);
  }
  const Axis x = LogAxis(least, most, kLeft, kLeft + kWidth);
  const Axis y = LogAxis(1 / static_cast<double>(count), 1, kTop + kHeight, kTop);
  std::string svg = Begin(title.c_str(), x, y, "milliseconds", "share");
  for (size_t i = 0; i < curves.size(); ++i) svg += TailCurve(*curves[i].second, x, y, Color(i));
  return svg + "</svg>\n" + Legend(names);
}

std::string LoadHtml(const LoadReport& report, const LoadRun& run) {
  const RequestFigures& all = report.figures.all;
  return HtmlPage(
      report.workload.name + " on " + report.model,
      "<pre>" + EscapedHtml(LoadText(report)) + "</pre>\n" +
          TailPlot("Share of samples at or above", {{"TTFT", &all.ttft_ms},
                                                    {"gap", &all.itl_ms},
                                                    {"longest gap", &all.longest_gap_ms},
                                                    {"e2e", &all.e2e_ms}}) +
          RequestPlot(report, run) + RatePlot(report.figures) + "<h2>Command</h2>\n<pre>" +
          EscapedHtml(report.command) + "</pre>\n");
}

}  // namespace kvrm::cli
