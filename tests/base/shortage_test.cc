#include "megatrain/base/shortage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <new>
#include <system_error>

namespace megatrain {
namespace {

std::system_error system_error_of(int error) { return {error, std::generic_category(), "thread::thread"}; }

void expect_shortage(const std::exception& error, const std::string& part) {
  const Error said = as_error(error);
  EXPECT_EQ(said.code(), ExitCode::cannot_fit) << said.what();
  EXPECT_NE(std::string(said.what()).find(part), std::string::npos) << said.what();
  EXPECT_EQ(std::string(said.what()).find("internal"), std::string::npos) << said.what();
}

TEST(Shortage, OfMemoryThreadsAndFilesSaysWhatIsShortAndEndsWithFour) {
  expect_shortage(std::bad_alloc(), "memory");
  expect_shortage(std::bad_array_new_length(), "memory");
  expect_shortage(system_error_of(ENOMEM), "memory");
  expect_shortage(system_error_of(EAGAIN), "--threads");
  expect_shortage(system_error_of(EMFILE), "ulimit -n");
  expect_shortage(system_error_of(ENFILE), "ulimit -n");
  const std::error_code files(EMFILE, std::system_category());
  expect_shortage(std::filesystem::filesystem_error("directory iterator", files), "ulimit -n");
}

TEST(Shortage, OtherExceptionsKeepTheirMeaning) {
  const Error ours = as_error(Error(ExitCode::bad_input, "a file"));
  EXPECT_EQ(ours.code(), ExitCode::bad_input);
  EXPECT_STREQ(ours.what(), "a file");
  const std::error_code denied(EACCES, std::system_category());
  EXPECT_EQ(as_error(std::filesystem::filesystem_error("remove", denied)).code(), ExitCode::io);
  EXPECT_EQ(as_error(system_error_of(EDEADLK)).code(), ExitCode::internal);
  EXPECT_EQ(as_error(std::out_of_range("at")).code(), ExitCode::internal);
}

}  // namespace
}  // namespace megatrain
