// The names that a test of a server over its socket is written in. Test code only.
#pragma once

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {

using testing::Eventually;
using testing::Get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::kChat;
using testing::kCompletions;
using testing::Post;
using testing::PostStream;
using testing::StreamAnswer;
using testing::TestServer;

}  // namespace kvrm
