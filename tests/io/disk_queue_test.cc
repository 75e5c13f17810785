// Whole blocks written to a scratch file and read back, by every queue of this machine, with and without I/O failures.
#include "megatrain/io/disk_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file_system.h"
#include "tests/support/fixtures.h"
#include "tests/support/flip_scratch.h"

namespace megatrain {
namespace {

struct FreeBlocks {
  void operator()(std::byte* data) const { std::free(data); }
};
using Blocks = std::unique_ptr<std::byte, FreeBlocks>;

Blocks make_blocks(int64_t bytes) {
  Blocks blocks(static_cast<std::byte*>(std::aligned_alloc(kDiskBlock, static_cast<size_t>(bytes))));
  std::memset(blocks.get(), 0, static_cast<size_t>(bytes));
  return blocks;
}

Blocks random_blocks(int64_t bytes, uint64_t seed) {
  Blocks blocks = make_blocks(bytes);
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = random_bits(seed, 0, static_cast<uint64_t>(at));
    std::memcpy(blocks.get() + at, &word, 8);
  }
  return blocks;
}

// An odd number of pieces, with a shorter last one.
constexpr int64_t kBytes = 5 * kMiB + 3 * kDiskBlock;

// If io_uring is not available, make_disk_queue says so, and only the threads are tested.
std::vector<DiskQueueKind> kinds_here(ScratchFile& file) {
  std::string why;
  std::vector<DiskQueueKind> kinds = {DiskQueueKind::threads};
  if (make_uring_queue(file, {}, &why)) {
    kinds.push_back(DiskQueueKind::io_uring);
  } else {
    EXPECT_FALSE(why.empty());
    expect_error(ExitCode::io, {"io_uring"}, [&] { make_disk_queue(file, {.kind = DiskQueueKind::io_uring}); });
  }
  return kinds;
}

class DiskQueues : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  ScratchFile file_{{.directory = directory_.path()}, {kBytes, kBytes, kBytes}};
};

TEST_F(DiskQueues, WhatIsWrittenAnywhereIsReadBackAndTheRestIsZero) {
  for (const DiskQueueKind kind : kinds_here(file_)) {
    const auto queue = make_disk_queue(file_, {.kind = kind});
    const Blocks written = random_blocks(kBytes, static_cast<uint64_t>(kind)), read = make_blocks(kBytes);
    queue->write(kBytes, written.get(), kBytes);
    queue->read(kBytes, read.get(), kBytes);
    EXPECT_EQ(std::memcmp(written.get(), read.get(), kBytes), 0) << queue->name();
    queue->read(2 * kBytes, read.get(), kBytes);
    const Blocks zeros = make_blocks(kBytes);
    EXPECT_EQ(std::memcmp(zeros.get(), read.get(), kBytes), 0) << queue->name();
    // reads through the page cache and around it return the same bytes
    const uint32_t word = 0x12345678;
    uint32_t back = 0;
    file_.write_at(kBytes + 4001, &word, sizeof(word));
    queue->read(kBytes, read.get(), kBytes);
    std::memcpy(&back, read.get() + 4001, sizeof(back));
    EXPECT_EQ(back, word);
    queue->write(kBytes, written.get(), kBytes);
    file_.read_at(kBytes + 4001, &back, sizeof(back));
    EXPECT_EQ(std::memcmp(&back, written.get() + 4001, sizeof(back)), 0);
  }
}

TEST_F(DiskQueues, InterruptedAndShortTransfersGoOnWhereTheyStopped) {
  for (const DiskQueueKind kind : kinds_here(file_)) {
    std::atomic<int64_t> calls = 0;
    std::mutex mutex;
    std::set<int64_t> within;  // offsets inside pieces: transfers that were continued
    const auto disturb = [&](bool, int64_t offset, int64_t result) -> int64_t {
      if (offset % kMiB != kBytes % kMiB) {
        std::lock_guard lock(mutex);
        within.insert(offset);
      }
      switch (calls++ % 4) {
        case 0: return -EINTR;
        case 1: return -EAGAIN;
        case 2: return result > 2 * kDiskBlock ? kDiskBlock + 100 : result;  // the odd bytes are transferred again
        default: return result;
      }
    };
    const auto queue = make_disk_queue(file_, {.kind = kind, .result = disturb});
    const Blocks written = random_blocks(kBytes, 7 + static_cast<uint64_t>(kind)), read = make_blocks(kBytes);
    queue->write(kBytes, written.get(), kBytes);
    queue->read(kBytes, read.get(), kBytes);
    EXPECT_EQ(std::memcmp(written.get(), read.get(), kBytes), 0) << queue->name();
    EXPECT_FALSE(within.empty());
    for (const int64_t offset : within) EXPECT_EQ(offset % kDiskBlock, 0);
  }
}

TEST_F(DiskQueues, AFailureIsASentenceWithFileAndOffsetAndTheQueueWorksOn) {
  for (const DiskQueueKind kind : kinds_here(file_)) {
    for (const int error : {EIO, ENOSPC}) {
      std::atomic<bool> broken = true;
      const auto fault = [&](bool write, int64_t offset, int64_t result) -> int64_t {
        return broken && write && offset == kBytes + 2 * kMiB ? -error : result;
      };
      const auto queue = make_disk_queue(file_, {.kind = kind, .result = fault});
      const Blocks data = random_blocks(kBytes, 3), read = make_blocks(kBytes);
      expect_error(ExitCode::io,
                   {"cannot write", std::to_string(kBytes + 2 * kMiB), file_.path(), std::strerror(error),
                    error == ENOSPC ? "free space" : "check the disk"},
                   [&] { queue->write(kBytes, data.get(), kBytes); });
      broken = false;
      queue->write(kBytes, data.get(), kBytes);
      queue->read(kBytes, read.get(), kBytes);
      EXPECT_EQ(std::memcmp(data.get(), read.get(), kBytes), 0);
    }
  }
}

TEST_F(DiskQueues, AFileThatWasCutIsFound) {
  ASSERT_EQ(::ftruncate(file_.descriptor(), 2 * kBytes + kMiB), 0);
  for (const DiskQueueKind kind : kinds_here(file_)) {
    const auto queue = make_disk_queue(file_, {.kind = kind});
    const Blocks data = make_blocks(kBytes);
    expect_error(ExitCode::io, {"cannot read", "ends before"}, [&] { queue->read(2 * kBytes, data.get(), kBytes); });
  }
}

TEST_F(DiskQueues, ABitThatFlippedAnywhereIsFoundByEveryWayToReadIt) {
  for (const DiskQueueKind kind : kinds_here(file_)) {
    const auto queue = make_disk_queue(file_, {.kind = kind});
    const Blocks data = random_blocks(kBytes, 9), read = make_blocks(kBytes);
    for (const int64_t range : {kBytes, 2 * kBytes}) {  // the last range was never written
      if (range == kBytes) queue->write(range, data.get(), kBytes);
      for (const int64_t at : {int64_t{0}, kMiB - 1, 3 * kMiB + 77, kBytes - 1}) {
        const int64_t piece = at / kMiB * kMiB, byte = range + at;
        ASSERT_TRUE(flip_scratch(byte, byte + 1, 1));
        const std::string where = "byte " + std::to_string(range + piece) + " of";
        const auto refused = [&](const auto& action) {
          expect_error(ExitCode::io, {"changed", where, file_.path()}, action);
        };
        refused([&] { queue->read(range, read.get(), kBytes); });
        refused([&] { file_.read_at(range, read.get(), kBytes); });
        refused([&] { file_.read_at(range + piece + 5, read.get(), 3); });
        refused([&] { file_.write_at(range + piece + 5, data.get(), 3); });
        EXPECT_NO_THROW(queue->read(0, read.get(), kBytes)) << "another range";
        ASSERT_TRUE(flip_scratch(byte, byte + 1, 1));
        EXPECT_NO_THROW(queue->read(range, read.get(), kBytes));
      }
    }
    EXPECT_EQ(std::memcmp(make_blocks(kBytes).get(), read.get(), kBytes), 0) << "never written";
  }
}

// The tail of each write lies in the same piece as the head of the next.
TEST_F(DiskQueues, PartsOfAPieceThatThreadsWriteAtOnceAreAllReadBack) {
  constexpr int64_t kPart = 300007;
  const Blocks data = random_blocks(kBytes, 11), read = make_blocks(kBytes);
  std::vector<std::thread> threads;
  for (int64_t which = 0; which < 4; ++which) {
    threads.emplace_back([&, which] {
      for (int64_t at = which * kPart; at < kBytes; at += 4 * kPart)
        file_.write_at(kBytes + at, data.get() + at, std::min(kPart, kBytes - at));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int64_t at = 0; at < kBytes; at += 100003)
    file_.read_at(kBytes + at, read.get() + at, std::min<int64_t>(100003, kBytes - at));
  EXPECT_EQ(std::memcmp(data.get(), read.get(), kBytes), 0);
  for (const DiskQueueKind kind : kinds_here(file_)) {
    const Blocks moved = make_blocks(kBytes);
    make_disk_queue(file_, {.kind = kind})->read(kBytes, moved.get(), kBytes);
    EXPECT_EQ(std::memcmp(data.get(), moved.get(), kBytes), 0);
  }
}

TEST(ScratchFile, LeavesNothingInItsDirectoryNotEvenWhileItIsOpen) {
  const TemporaryDirectory directory;
  const ScratchFile file({.directory = directory.path()}, kMiB);
  EXPECT_TRUE(listing(directory.path()).empty());
}

TEST(ScratchFile, RefusesAPlaceThatCannotBeUsedBeforeItTakesAnything) {
  const TemporaryDirectory directory;
  const auto refused = [](const std::string& path, int64_t bytes, ExitCode code,
                          std::initializer_list<std::string> parts) {
    expect_error(code, parts, [&] { check_scratch_place({.directory = path}, bytes); });
    expect_error(code, parts, [&] { ScratchFile file({.directory = path}, bytes); });
  };
  refused(directory / "nothing", kMiB, ExitCode::bad_config, {"memory.nvme_path", "nothing", "not a directory"});
  write_bytes(directory / "file", "x");
  refused(directory / "file", kMiB, ExitCode::bad_config, {"not a directory"});
  refused("/proc", kMiB, ExitCode::bad_config, {"memory.nvme_path", "/proc", "written"});
  refused(directory.path(), int64_t{1} << 60, ExitCode::cannot_fit, {directory.path(), "free", "memory.nvme"});
}

TEST(ScratchFile, RefusesANetworkFileSystemUnlessItIsForced) {
  expect_error(ExitCode::bad_config, {"/home/me", "nfs4", "memory.nvme_force"},
               [] { check_scratch_file_system({.directory = "/home/me"}, "nfs4"); });
  EXPECT_NO_THROW(check_scratch_file_system({.directory = "/home/me", .allow_network = true}, "nfs4"));
  EXPECT_NO_THROW(check_scratch_file_system({.directory = "/home/me"}, "ext4"));
}

TEST(ScratchFile, ALimitOfFileSizesIsFoundBeforeTheFirstByte) {
  const TemporaryDirectory directory;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{kMiB, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ExitCode::io, {"reserve", directory.path(), "ulimit -f"},
               [&] { ScratchFile file({.directory = directory.path()}, 2 * kMiB); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal);
  EXPECT_TRUE(listing(directory.path()).empty());
}

TEST(FileSystem, IsThatOfTheLongestMountThatHoldsThePath) {
  const std::string table =
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "30 22 0:44 / /home rw - nfs4 server:/home rw,vers=4.2\n"
      "31 30 259:1 / /home/me/fast\\040disk rw shared:7 master:2 - xfs /dev/nvme0n1p1 rw\n"
      "32 22 0:50 / /mnt rw - tmpfs tmpfs rw\n"
      "33 22 0:51 / /mnt rw - fuse.sshfs me@there:/ rw\n"
      "not a line of the table\n";
  EXPECT_EQ(file_system_in(table, "/"), "ext4");
  EXPECT_EQ(file_system_in(table, "/homeless"), "ext4");
  EXPECT_EQ(file_system_in(table, "/home"), "nfs4");
  EXPECT_EQ(file_system_in(table, "/home/me"), "nfs4");
  EXPECT_EQ(file_system_in(table, "/home/me/fast disk/runs"), "xfs");
  EXPECT_EQ(file_system_in(table, "/mnt/x"), "fuse.sshfs");
  EXPECT_EQ(file_system_in("", "/mnt/x"), "");
  EXPECT_EQ(file_system_of("/proc/self"), "proc");
  EXPECT_EQ(file_system_of("/not/there"), "");
}

TEST(FileSystem, OfANetworkIsToldFromALocalOne) {
  for (const char* type : {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "fuse.s3fs"})
    EXPECT_TRUE(is_network_file_system(type)) << type;
  for (const char* type : {"ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse.fuse-overlayfs", "zfs", ""})
    EXPECT_FALSE(is_network_file_system(type)) << type;
}

}  // namespace
TEST(ScratchFile, ANameThatCannotBeTakenAwayIsAWarning) {
  const TemporaryDirectory directory;  // unlink cannot remove a folder
  testing::internal::CaptureStderr();
  remove_scratch_name(directory.path());
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find(directory.path()), std::string::npos) << lines;
  EXPECT_NE(lines.find("could not unlink"), std::string::npos) << lines;
}

}  // namespace megatrain
