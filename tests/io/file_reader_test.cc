// Ranges of ordinary files, read past the page cache and through it.
#include "megatrain/io/file_reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

#include <gtest/gtest.h>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

std::string random_text(int64_t bytes, uint64_t seed) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(random_bits(seed, 1, i));
  return text;
}

class Readers : public ::testing::TestWithParam<bool> {
 protected:
  Readers() {
    for (size_t i = 0; i < contents_.size(); ++i) write_bytes(paths_[i], contents_[i]);
  }

  FileReaderOptions options(int threads = 4) const { return {.threads = threads, .direct = GetParam()}; }

  // Reads the ranges and compares them with the contents.
  void expect_contents(FileReader& reader, const std::vector<FileRange>& ranges,
                       const std::vector<FileRange>& next = {}) {
    std::mutex mutex;
    std::vector<int> seen(ranges.size());
    const auto put = [&](int64_t i, const std::byte* data) {
      const FileRange& range = ranges[static_cast<size_t>(i)];
      const std::string& text = contents_[static_cast<size_t>(range.file)];
      const bool same = std::memcmp(data, text.data() + range.offset, static_cast<size_t>(range.bytes)) == 0;
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(same) << range.bytes << " bytes at " << range.offset;
      ++seen[static_cast<size_t>(i)];
    };
    reader.read(ranges, put, next);
    EXPECT_EQ(seen, std::vector<int>(ranges.size(), 1));
  }

  TemporaryDirectory directory_;
  std::vector<std::string> contents_ = {random_text(3 * kMiB + 77, 1), random_text(5000, 2), random_text(1, 3)};
  std::vector<std::string> paths_ = {directory_ / "a", directory_ / "b", directory_ / "c"};
};

TEST_P(Readers, GiveAnyRangesOfSeveralFilesInAnyOrder) {
  FileReader reader(paths_, options());
  expect_contents(reader, {{2, 0, 1}, {0, 0, kMiB}, {1, 4999, 1}, {0, 3 * kMiB, 77}, {1, 0, 5000}, {0, 4095, 2}});
  std::vector<FileRange> ranges;
  for (uint64_t i = 0; i < 200; ++i) {
    const int64_t file = static_cast<int64_t>(random_below(4, 1, i, 2));
    const int64_t bytes = std::ssize(contents_[static_cast<size_t>(file)]);
    const int64_t offset = static_cast<int64_t>(random_below(4, 2, i, static_cast<uint64_t>(bytes)));
    const int64_t most = std::min(bytes - offset, kFileRangeBytes + 5000);
    ranges.push_back({file, offset, 1 + static_cast<int64_t>(random_below(4, 3, i, static_cast<uint64_t>(most)))});
  }
  expect_contents(reader, ranges);
  expect_contents(reader, {});
}

TEST_P(Readers, FetchAheadForTheNextCallAndDropWhatAnotherCallDoesNotWant) {
  std::atomic<int> fetched{0};
  FileReaderOptions counting = options();
  counting.result = [&](int64_t, int64_t result) -> int64_t {
    ++fetched;
    return result;
  };
  FileReader reader(paths_, counting);
  const std::vector<FileRange> one = {{0, 5, kMiB}, {1, 3, 900}}, other = {{0, kMiB, 7}, {2, 0, 1}, {1, 100, 80}},
                               many(30, {0, 12345, 4567});
  for (int turn = 0; turn < 20; ++turn) {
    expect_contents(reader, one, other);
    expect_contents(reader, other, many);
    expect_contents(reader, many, one);
  }
  EXPECT_GE(fetched, 20 * 35);
  EXPECT_LE(fetched, 20 * 35 + 2) << "no range twice; those of the call that is expected now may have come already";
  expect_contents(reader, other, one);  // not what was expected
  expect_contents(reader, one);
  expect_contents(reader, one);
}

TEST_P(Readers, FailInTheCallWhoseRangesWereFetchedAhead) {
  std::atomic<bool> failing{true};
  FileReaderOptions broken = options();
  broken.result = [&](int64_t offset, int64_t result) -> int64_t { return failing && offset >= kMiB ? -EIO : result; };
  FileReader reader(paths_, broken);
  const std::vector<FileRange> good = {{0, 0, 10}}, bad = {{0, 2 * kMiB, 10}};
  expect_contents(reader, good, bad);
  expect_error(ExitCode::io, {"cannot read", paths_[0]}, [&] { expect_contents(reader, bad, good); });
  failing = false;
  expect_contents(reader, good, bad);
  expect_contents(reader, bad);
}

TEST_P(Readers, GoOnAfterShortAndInterruptedReads) {
  FileReaderOptions some = options();
  std::atomic<int> calls{0};
  some.result = [&](int64_t, int64_t result) -> int64_t {
    const int call = ++calls;
    return call % 3 == 0 ? -EINTR : call % 3 == 1 && result > 8192 ? result / 2 : result;
  };
  FileReader reader(paths_, some);
  expect_contents(reader, {{0, 100, kMiB}, {0, kMiB + 1, kMiB}, {1, 7, 4000}});
}

TEST_P(Readers, NameTheFileThatEndsTooEarlyOrFails) {
  FileReaderOptions failing = options();
  failing.result = [](int64_t offset, int64_t result) -> int64_t { return offset >= kMiB ? -EIO : result; };
  FileReader broken(paths_, failing);
  const auto ignore = [](int64_t, const std::byte*) {};
  expect_error(ExitCode::io, {"cannot read", paths_[0], "check the disk"}, [&] {
    broken.read(std::vector<FileRange>{{0, 0, 10}, {0, 2 * kMiB, 10}}, ignore);
  });
  FileReader reader(paths_, options());
  expect_error(ExitCode::io, {paths_[1], "ends before byte 6000"}, [&] {
    reader.read(std::vector<FileRange>{{1, 1000, 5000}}, ignore);
  });
  expect_contents(reader, {{1, 0, 5000}});
  expect_error(ExitCode::bad_input, {"cannot open", "missing"},
               [&] { FileReader(std::vector{directory_ / "missing"}); });
}

TEST_P(Readers, PassOnTheExceptionOfAPut) {
  FileReader reader(paths_, options(2));
  const std::vector<FileRange> ranges(40, {0, 0, 100});
  std::atomic<int> put{0};
  const auto fails = [&](int64_t, const std::byte*) {
    if (++put == 3) fail_input("the third");
  };
  expect_error(ExitCode::bad_input, {"the third"}, [&] { reader.read(ranges, fails); });
  EXPECT_LT(put, 40);
  expect_contents(reader, ranges);
}

TEST_P(Readers, RefuseAFileThatIsNotTheOneThatWasOpened) {
  const auto ignore = [](int64_t, const std::byte*) {};
  const std::vector<FileRange> ranges = {{0, 0, 10}, {1, 0, 10}};
  {
    FileReader reader(paths_, options());
    std::filesystem::resize_file(paths_[1], 4000);
    expect_error(ExitCode::io, {paths_[1], "had 5000 bytes and now has 4000"}, [&] { reader.read(ranges, ignore); });
    EXPECT_NO_THROW(reader.read(std::vector<FileRange>{{0, 0, 10}}, ignore)) << "the other file is as it was";
  }
  FileReader reader(paths_, options());
  write_bytes(directory_ / "new", contents_[0]);
  std::filesystem::rename(directory_ / "new", paths_[0]);
  expect_error(ExitCode::io, {paths_[0], "replaced"}, [&] { reader.read(ranges, ignore); });
}

INSTANTIATE_TEST_SUITE_P(Ways, Readers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "direct" : "cached"; });

}  // namespace
}  // namespace megatrain
