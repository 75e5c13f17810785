#include "megatrain/io/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "megatrain/io/file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class FileLock : public testing::Test {
 protected:
  FileLock() : directory_(testing::TempDir() + "/file_lock_XXXXXX") {
    if (!::mkdtemp(directory_.data())) std::abort();
    path_ = directory_ + "/lock";
  }
  ~FileLock() override { fs::remove_all(directory_); }

  Descriptor open() const { return Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)); }
  bool take(const Descriptor& file) const { return lock_if_free(file, path_, "a second one"); }

  std::string directory_, path_;
};

TEST_F(FileLock, IsHeldByOneAtATimeUntilItsFileIsClosed) {
  EXPECT_EQ(look_at_lock(path_), LockState::absent);
  Descriptor first = open();
  EXPECT_EQ(look_at_lock(path_), LockState::free);
  EXPECT_TRUE(take(first));
  EXPECT_EQ(look_at_lock(path_), LockState::held);
  const Descriptor second = open();
  EXPECT_FALSE(take(second));
  Descriptor moved(std::move(first));
  EXPECT_FALSE(take(second));
  moved.close();
  EXPECT_TRUE(take(second));
}

TEST_F(FileLock, IsTakenOnceOthersHaveLooked) {
  Descriptor looks = open();
  ASSERT_EQ(::flock(looks.get(), LOCK_SH), 0);
  std::atomic<bool> began{false}, taken{false};
  std::thread takes([&] {
    const Descriptor file = open();
    began = true;
    taken = take(file);
  });
  while (!began) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // holds the shared lock until the other thread waits
  looks.close();
  takes.join();
  EXPECT_TRUE(taken);
}

TEST_F(FileLock, ItsFileIsNotAtAPathThatIsALinkToItOrHasAnotherFile) {
  const Descriptor file = open();
  EXPECT_TRUE(file.is_at(path_));
  fs::rename(path_, directory_ + "/moved");
  EXPECT_FALSE(file.is_at(path_));
  EXPECT_TRUE(file.is_at(directory_ + "/moved"));
  fs::create_symlink(directory_ + "/moved", path_);
  EXPECT_FALSE(file.is_at(path_));
  fs::remove(path_);
  const Descriptor another = open();
  EXPECT_FALSE(file.is_at(path_));
  EXPECT_FALSE(Descriptor().is_at(path_));
}

TEST_F(FileLock, TheTextOfAnOwnerReplacesALongerOne) {
  const Descriptor file = open();
  EXPECT_TRUE(write_owner(file, "pid 12345 on host h\n"));
  EXPECT_TRUE(write_owner(file, "pid 1\n"));
  EXPECT_EQ(read_text_file(path_, 100), "pid 1\n");
}

}  // namespace
}  // namespace megatrain
