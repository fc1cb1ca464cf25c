#include "server/openapi.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <variant>

#include "server/openai_fields.h"
#include "server/openapi_schemas.h"
#include "server/routes.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr Api kDescribedApis[] = {Api::kChat, Api::kCompletions, Api::kNative, Api::kResponses,
                                  Api::kMessages};

TEST(OpenApi, EveryRouteOfTheTableStandsInItOnceWithItsMethod) {
  const json::value api = json::parse(OpenApiBody("1.2.3"));
  EXPECT_EQ(api.at("info").at("version").as_string(), "1.2.3");
  const auto& paths = api.at("paths").as_object();
  size_t expected = 0;
  for (const RouteInfo& info : AllRoutes()) {
    EXPECT_EQ(paths.contains(info.path), info.kind != RouteKind::kNone) << info.path;
    if (info.kind == RouteKind::kNone) continue;
    ++expected;
    const auto& operations = paths.at(info.path).as_object();
    EXPECT_EQ(operations.size(), 1u);
    EXPECT_TRUE(operations.contains(IsPost(info.route) ? "post" : "get")) << info.path;
  }
  EXPECT_EQ(paths.size(), expected);
}

TEST(OpenApi, EveryFieldThatIsReadHasASchemaAndIsListedWhereItIsRead) {
  const json::value api = json::parse(OpenApiBody("1"));
  for (const RouteInfo& info : AllRoutes()) {
    if (info.kind != RouteKind::kGenerate) continue;
    const auto& properties = api.at("paths")
                                 .at(info.path)
                                 .at("post")
                                 .at("requestBody")
                                 .at("content")
                                 .at("application/json")
                                 .at("schema")
                                 .at("properties")
                                 .as_object();
    const auto names = ReadFieldNames(ApiOf(info.route));
    EXPECT_EQ(properties.size(), names.size()) << info.path;
    for (const auto name : names) {
      EXPECT_FALSE(FieldSchema(ApiOf(info.route), name).empty()) << name << " has no schema";
      EXPECT_TRUE(properties.contains(name)) << name;
    }
  }
}

// The document does not promise what the reader refuses as a type, nor the other way round.
TEST(OpenApi, EveryFieldListedIsReadByItsName) {
  for (const Api api : kDescribedApis) {
    for (const auto name : ReadFieldNames(api)) {
      // No field takes an array of arrays of objects.
      const auto parsed = ParseRequest(api, "{\"" + std::string(name) + "\":[[{}]]}", {});
      const auto* error = std::get_if<ApiError>(&parsed);
      ASSERT_NE(error, nullptr) << name;
      EXPECT_TRUE(error->param.starts_with(name)) << name << ": " << error->message;
    }
  }
}

}  // namespace
}  // namespace kvrm
