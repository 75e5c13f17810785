// Checksums of what `prepare --out` wrote.
#include "megatrain/data/prepared_set.h"

#include <filesystem>

#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

class PreparedSet : public ::testing::Test {
 protected:
  PreparedSet() {
    config_.data = {.tokens = directory_ / "tokens.bin",
                    .documents = directory_ / "documents.bin",
                    .labels = directory_ / "labels.bin",
                    .order = directory_ / "order.bin"};
    config_.threads = 2;
    for (const char* name : {"tokens.bin", "documents.bin", "labels.bin", "order.bin"})
      write_bytes(directory_ / name, std::string(3 << 20, name[0]) + name);
    finish_prepared_set(directory_.path(), {.checksums = {},
                                            .tokens = "tokens.bin",
                                            .dtype = "uint32",
                                            .labels = "labels.bin",
                                            .documents = "documents.bin"});
  }

  TemporaryDirectory directory_;
  TrainConfig config_;
};

TEST_F(PreparedSet, AFlippedBitAnywhereIsRefusedWithTheNameOfTheFile) {
  check_prepared_files(config_);
  for (const std::string name : {"tokens.bin", "documents.bin", "labels.bin"}) {
    const std::string whole = read_bytes(directory_ / name);
    for (const size_t at : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
      std::string damaged = whole;
      damaged[at] ^= 16;
      write_bytes(directory_ / name, damaged);
      expect_error(ExitCode::bad_input, {name, "damaged", "prepare"}, [&] { check_prepared_files(config_); });
    }
    std::filesystem::resize_file(directory_ / name, whole.size() - 4);
    expect_error(ExitCode::bad_input, {name, "damaged"}, [&] { check_prepared_files(config_); });
    write_bytes(directory_ / name, whole);
  }
  check_prepared_files(config_);
}

TEST_F(PreparedSet, FilesThatNoManifestNamesAreTakenAsTheyAre) {
  write_bytes(directory_ / "order.bin", "another");
  check_prepared_files(config_);
  write_bytes(directory_ / "tokens.bin", "another");
  std::filesystem::remove(directory_ / kPreparedManifest);
  check_prepared_files(config_);
}

TEST_F(PreparedSet, ADamagedManifestIsRefused) {
  std::string text = read_bytes(directory_ / kPreparedManifest);
  text[text.find("labels")] = 'L';
  write_bytes(directory_ / kPreparedManifest, text);
  expect_error(ExitCode::bad_input, {kPreparedManifest, "damaged"}, [&] { check_prepared_files(config_); });
}

}  // namespace
}  // namespace megatrain
