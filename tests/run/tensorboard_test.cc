#include "megatrain/run/tensorboard.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/run/event_records.h"

namespace megatrain {

namespace {

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

constexpr double kWallTime = 1700000000.25;

}  // namespace

TEST(Tensorboard, CrcIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// The bytes come from tests/run/make_event_goldens.py.
TEST(Tensorboard, RecordsAreThoseOfTensorBoardsOwnWriter) {
  EXPECT_EQ(hexadecimal(tf_record(version_event(kWallTime))),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(hexadecimal(tf_record(scalar_event(kWallTime, 300, "train/loss", 2.5))),
            "2100000000000000017becf60900001040fc54d94110ac022a130a110a0a747261696e2f6c6f737315000020408dabcc7d");
  EXPECT_EQ(hexadecimal(tf_record(start_event(kWallTime, int64_t{1} << 40))),
            "14000000000000005e3d29150900001040fc54d941108080808080203a020801780f0a8a");
}

TEST(Tensorboard, FilesBeginWithTheVersionAndSortInTheOrderTheyWereMade) {
  const TemporaryDirectory directory;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    EventFile file(directory / "tensorboard", i + 1);
    file.scalar("eval/loss", 3, 0.5);
    file.flush();
    paths.push_back(file.path());
  }
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  EXPECT_EQ(listing(directory / "tensorboard").size(), 3u);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::vector<ReadEvent> events = read_events(paths[i]);
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_TRUE(events[1].start);
    EXPECT_EQ(events[1].step, static_cast<int64_t>(i + 1));
    EXPECT_EQ(events[2].tag, "eval/loss");
    EXPECT_EQ(events[2].value, 0.5f);
    EXPECT_EQ(events[2].step, 3);
  }
}

TEST(Tensorboard, AFileSortsLastEvenWhenTheClockWentBack) {
  const TemporaryDirectory directory;
  write_bytes(directory / "events.out.tfevents.9000000000.000000", "");
  EXPECT_EQ(EventFile(directory.path(), 1).path(), directory / "events.out.tfevents.9000000000.000001");
}

TEST(Tensorboard, SaysWhichDirectoryItCannotMake) {
  const TemporaryDirectory directory;
  write_bytes(directory / "taken", "");
  expect_error(ExitCode::io, {directory / "taken"}, [&] { EventFile file(directory / "taken", 1); });
}

}  // namespace megatrain
