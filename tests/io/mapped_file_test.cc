// A file truncated while it is mapped gives an error message and exit code 5, never a bare SIGBUS.
#include "megatrain/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr int64_t kPages = 4 * 65536;  // whole pages, whatever the page size

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() : path_(::testing::TempDir() + "mapped-" + std::to_string(::getpid()) + ".bin") { fill(); }
  ~MappedFileTest() override { std::filesystem::remove(path_); }

  void fill() const { std::ofstream(path_, std::ios::binary) << std::string(kPages, 'x'); }
  void cut(int64_t bytes) const { std::filesystem::resize_file(path_, static_cast<uintmax_t>(bytes)); }

  static int byte(const std::byte* data, int64_t at) {
    return std::to_integer<int>(*const_cast<const volatile std::byte*>(data + at));
  }

  std::string path_;
};

// Whether a child ended with neither success nor our message: by the signal itself, or a sanitizer's report of it.
bool ended_by_the_signal(int status) {
  return status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::io));
}

TEST_F(MappedFileTest, AReadBehindTheCutEndsWithASentenceThatNamesTheFile) {
  const auto read_cut = [&] {
    const MappedFile file(path_);
    cut(0);
    ::_exit(byte(file.data(), kPages - 1) == 'x' ? 0 : 1);
  };
  EXPECT_EXIT(read_cut(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::io)),
              "megatrain: cannot read .*mapped-.*bin: the file was truncated while in use");
}

TEST_F(MappedFileTest, AMovedMappingIsStillWatchedAndAForgottenOneIsNot) {
  const auto read_cut = [&] {
    std::optional<MappedFile> first(path_);
    MappedFile second = std::move(*first);
    first.emplace(path_);  // takes its own entry in the list
    first.reset();
    cut(0);
    ::_exit(byte(second.data(), 0) == 'x' ? 0 : 1);
  };
  EXPECT_EXIT(read_cut(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::io)), "cannot read .*mapped-");
}

TEST_F(MappedFileTest, ASigbusOfAnythingElseGoesToTheHandlerBefore) {
  const auto read_foreign = [&] {
    const MappedFile ours(path_);
    const std::string other = path_ + ".other";
    std::ofstream(other, std::ios::binary) << std::string(kPages, 'x');
    const int descriptor = ::open(other.c_str(), O_RDONLY);
    const void* const theirs = ::mmap(nullptr, kPages, PROT_READ, MAP_PRIVATE, descriptor, 0);
    std::filesystem::resize_file(other, 0);
    std::filesystem::remove(other);
    ::_exit(byte(static_cast<const std::byte*>(theirs), 0) == 'x' ? 0 : static_cast<int>(ExitCode::io));
  };
  EXPECT_EXIT(read_foreign(), ended_by_the_signal, "");
  const auto sent = [&] {
    const MappedFile ours(path_);
    ::raise(SIGBUS);
    ::_exit(0);
  };
  EXPECT_EXIT(sent(), ended_by_the_signal, "");
}

TEST_F(MappedFileTest, ACutInsideTheLastPageWhichReadsAsZerosIsFound) {
  const MappedFile file(path_);
  file.check_whole();
  cut(kPages - 10);
  EXPECT_EQ(byte(file.data(), kPages - 1), 0);  // no fault
  try {
    file.check_whole();
    ADD_FAILURE() << "a shorter file passes for whole";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::io);
    EXPECT_NE(std::string(error.what()).find(path_ + " has 262134 bytes but had 262144"), std::string::npos)
        << error.what();
  }
  cut(kPages + 100);
  file.check_whole();  // everything that was mapped is there
}

}  // namespace
}  // namespace megatrain
