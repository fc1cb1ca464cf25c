#include <gtest/gtest.h>

#include <string>

#include "bench/load/load_report.h"

namespace kvrm::cli {
namespace {

LoadRun ExampleRun() {
  LoadRun run;
  run.start_us = 5'000'000;
  run.counted_from_us = run.start_us;
  run.arrivals_end_us = run.start_us + 1'000'000;
  run.end_us = run.start_us + 2'000'000;
  run.own_cpu_s = 0.01;
  for (int64_t i = 0; i < 3; ++i) {
    RequestRecord record;
    record.id = static_cast<uint64_t>(i);
    record.source = i == 2 ? 1 : 0;
    record.intended_us = run.start_us + 100'000 * i;
    record.sent_us = record.intended_us + 250;
    for (int64_t text = 1; text <= 4; ++text) {
      record.events.push_back({record.intended_us + 40'000 * text, 9'000'000 + 39'000 * text});
    }
    record.end_us = record.events.back().arrived_us + 1'500;
    record.asked_prompt_tokens = 20;
    record.asked_output_tokens = 4;
    record.prompt_tokens = 22;
    record.output_tokens = 4;
    record.http_status = 200;
    record.finish_reason = "length";
    run.records.push_back(record);
  }
  run.records[1].outcome = Outcome::kReset;
  run.records[1].detail = "reset by <peer> & \"friends\"";
  run.records[1].cut_tokens = 16;
  return run;
}

LoadReport ExampleReport(const LoadRun& run) {
  LoadReport report;
  report.workload = *ParseWorkload("name = \"<mix>\"\nitl-ms = 39\n[talk]\n[bulk]\n", "w", {});
  report.figures = FiguresOf(run, report.workload);
  report.command = "kvrm bench serve http://h --workload w";
  report.url = "http://h";
  report.model = "m & m";
  report.context_tokens = 64;
  report.others_percent = 7;
  report.max_others_percent = 5;
  return report;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LoadReport, TheTextNamesErrorsCutsNoiseAndTheLongestGapOfEachSource) {
  const LoadRun run = ExampleRun();
  const std::string text = LoadText(ExampleReport(run));
  EXPECT_EQ(Count(text, "| longest gap"), 3u) << text;  // all, talk, bulk
  for (const char* part :
       {"1 reset", "cut to a context of 64: 33.3 % of requests", "NOISY", "every gap <= 39 ms",
        "100.0 %", "60 tokens asked for", "66 by the server", "0.50 % of a core"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(LoadReport, TheJsonHoldsTheSameFiguresUnderTheOneSchema) {
  const LoadRun run = ExampleRun();
  const boost::json::object json = LoadJson(ExampleReport(run));
  EXPECT_EQ(json.at("schema").as_int64(), 1);
  EXPECT_EQ(json.at("test").as_string(), "serve <mix>");
  EXPECT_TRUE(json.at("noisy").as_bool());
  const boost::json::object& all = json.at("all").as_object();
  EXPECT_EQ(all.at("due").as_uint64(), 3u);
  EXPECT_EQ(all.at("outcomes").at("reset").as_uint64(), 1u);
  EXPECT_EQ(all.at("requests_over_gap").as_uint64(), 3u);
  EXPECT_EQ(all.at("itl_ms").at("samples").as_uint64(), 9u);
  EXPECT_EQ(all.at("itl_ms").at("p99.9").as_double(), 40);
  EXPECT_EQ(all.at("server_itl_ms").at("max").as_double(), 39);
  EXPECT_EQ(all.at("e2e_ms").at("p50").as_double(), 161.5);
  EXPECT_EQ(json.at("sources").as_array().size(), 2u);
  // What is missing is missing, not 0.
  const boost::json::object empty = LoadJson(ExampleReport(LoadRun{}));
  EXPECT_FALSE(empty.at("all").at("ttft_ms").as_object().contains("p50"));
}

TEST(LoadReport, ThePageNeedsNothingElseAndShowsEveryRequest) {
  const LoadRun run = ExampleRun();
  const std::string page = LoadHtml(ExampleReport(run), run);
  for (const char* foreign : {"<script", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  }
  EXPECT_EQ(page.find("<mix>"), std::string::npos);
  EXPECT_NE(page.find("&lt;mix&gt;"), std::string::npos);
  EXPECT_NE(page.find("m &amp; m"), std::string::npos);
  EXPECT_EQ(Count(page, "<svg"), 3u);
  EXPECT_EQ(Count(page, "</svg>"), 3u);
  EXPECT_EQ(Count(page, "<circle"), 6u);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  const std::string empty = LoadHtml(ExampleReport(LoadRun{}), LoadRun{});
  EXPECT_EQ(Count(empty, "<svg"), 0u);
  EXPECT_NE(empty.find("</html>"), std::string::npos);
}

TEST(LoadReport, FiguresCanBeMadeAgainFromTheSamples) {
  const LoadRun run = ExampleRun();
  const LoadReport report = ExampleReport(run);
  std::vector<double> gaps_ms, ttft_ms;
  const auto ms = [](const boost::json::value& end, const boost::json::value& begin) {
    return static_cast<double>(end.as_int64() - begin.as_int64()) / 1000;
  };
  for (const RequestRecord& record : run.records) {
    const auto line = boost::json::parse(SampleLine(record, run, report.workload)).as_object();
    const auto& texts = line.at("texts_us").as_array();
    ttft_ms.push_back(ms(texts[0], line.at("due_us")));
    for (size_t i = 1; i < texts.size(); ++i) {
      gaps_ms.push_back(ms(texts[i], texts[i - 1]));
    }
    EXPECT_EQ(line.at("server_sent_us").as_array().size(), texts.size());
  }
  EXPECT_EQ(Distribution(gaps_ms).sorted(), report.figures.all.itl_ms.sorted());
  EXPECT_EQ(Distribution(ttft_ms).sorted(), report.figures.all.ttft_ms.sorted());
  const auto failed = boost::json::parse(SampleLine(run.records[1], run, report.workload));
  EXPECT_EQ(failed.at("outcome").as_string(), "reset");
  EXPECT_EQ(failed.at("source").as_string(), "talk");
  EXPECT_EQ(failed.at("detail").as_string(), "reset by <peer> & \"friends\"");
}

}  // namespace
}  // namespace kvrm::cli
