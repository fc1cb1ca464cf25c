#include "model/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "model/gguf.h"

namespace kvrm {
namespace {

std::string OpenRefusal(const std::string& path) {
  const auto file = MappedFile::Open(path);
  EXPECT_FALSE(file.ok()) << path;
  return file.ok() ? "" : file.error().message;
}

// A pipe that nobody writes to would be waited for without end.
TEST(MappedFile, WhatIsNoRegularFileIsRefusedAndNeverWaitedFor) {
  const std::string folder = std::filesystem::path(::testing::TempDir()) / "kvrm_no_regular_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string pipe = folder + "/pipe.gguf";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket_path = folder + "/socket.gguf";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  std::filesystem::create_symlink(pipe, folder + "/link.gguf");

  EXPECT_EQ(OpenRefusal(pipe), pipe + ": is not a regular file but a pipe");
  EXPECT_EQ(OpenRefusal(folder + "/link.gguf"),
            folder + "/link.gguf: is not a regular file but a pipe");
  EXPECT_EQ(OpenRefusal(socket_path), socket_path + ": is not a regular file but a socket");
  EXPECT_EQ(OpenRefusal(folder), folder + ": is not a regular file but a folder");
  for (const char* device : {"/dev/null", "/dev/zero"}) {
    EXPECT_EQ(OpenRefusal(device), std::string(device) + ": is not a regular file but a device");
  }
  // As a model: alone, and as a file of a folder of one.
  const auto model = GgufFile::Open(pipe);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message, pipe + ": is not a regular file but a pipe");
  ASSERT_EQ(mkfifo((folder + "/config.json").c_str(), 0600), 0);
  const auto hub = GgufFile::Open(folder);
  ASSERT_FALSE(hub.ok());
  EXPECT_EQ(hub.error().message, folder + "/config.json: is not a regular file but a pipe");
  close(fd);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvrm
