#include "megatrain/hub/safetensors_writer.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "megatrain/hub/convert.h"
#include "megatrain/hub/safetensors.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

// While this lives, no file may grow past `bytes`: writes beyond that fail as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class SafetensorsWriterTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "out.safetensors";
};

TEST_F(SafetensorsWriterTest, WhatIsWrittenReadsBack) {
  SafetensorsWriter writer(
      path_, {{"b\"\n", DType::bf16, {3}}, {"a", DType::f32, {2, 2}}, {"e", DType::i64, {0, 4}}, {"s", DType::u8, {}}},
      {{"step", "12"}, {"format", "pt"}});
  const float a[] = {1, 2, 3, 4};
  writer.write("a", 0, a, 16);
  writer.write("b\"\n", 0, "012345", 6);
  writer.write("s", 0, "!", 1);
  writer.finish();
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b\"\n", "e", "s"}));
  EXPECT_EQ(file.find("a")->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(file.find("a")->data, a, 16), 0);
  EXPECT_EQ(std::memcmp(file.find("b\"\n")->data, "012345", 6), 0);
  EXPECT_EQ(file.find("e")->dtype, StoredType::i64);
  EXPECT_EQ(file.find("s")->data[0], std::byte{'!'});
  EXPECT_EQ(file.metadata().at("step"), "12");
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path_)), writer.file_bytes());
}

TEST_F(SafetensorsWriterTest, TheBytesOfAFileAreTheseAndNoOthers) {
  SafetensorsWriter writer(path_, {{"w", DType::u16, {2}}}, {{"format", "pt"}});
  writer.write("w", 0, "abcd", 4);
  writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}})";
  header.resize(120, ' ');
  EXPECT_EQ(read_bytes(path_), safetensors_bytes(header, "abcd"));
}

TEST_F(SafetensorsWriterTest, DataStartsAt64BytesAndTensorsAreNaturallyAligned) {
  for (size_t length = 1; length < 70; ++length) {
    SafetensorsWriter writer(path_, {{std::string(length, 'n'), DType::u8, {3}},
                                     {"w", DType::bf16, {3}},
                                     {"x", DType::f32, {1}},
                                     {"y", DType::f64, {1}}});
    writer.write(std::string(length, 'n'), 0, "abc", 3);
    writer.write("w", 0, "abcdef", 6);
    writer.write("x", 0, "abcd", 4);
    writer.write("y", 0, "abcdefgh", 8);
    writer.finish();
    const SafetensorsFile file(path_);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.find("y")->data) % 64, 0u);
    for (const StoredTensor& tensor : file.tensors()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(stored_type_bytes(tensor.dtype)), 0u);
    }
  }
}

TEST_F(SafetensorsWriterTest, AFileWithoutTensorsIsValid) {
  SafetensorsWriter(path_, {}).finish();
  EXPECT_TRUE(SafetensorsFile(path_).tensors().empty());
}

TEST_F(SafetensorsWriterTest, TakesPiecesInAnyOrderFromManyThreads) {
  constexpr int64_t kCount = 40'000;
  constexpr int kThreads = 4;
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 251);
  SafetensorsWriter writer(path_, {{"w", DType::f16, {kCount}}, {"v", DType::f32, {kCount}}});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t begin = 100 * (kCount / 100 - 1 - t); begin >= 0; begin -= 100 * kThreads) {
        writer.write_f32("w", begin, values.data() + begin, 100);
        writer.write_f32("v", begin, values.data() + begin, 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  const SafetensorsFile file(path_);
  std::vector<float> back(kCount);
  for (const char* name : {"w", "v"}) {
    read_as_f32(*file.find(name), 0, kCount, back.data());
    EXPECT_EQ(back, values) << name;
  }
}

TEST_F(SafetensorsWriterTest, ConvertsLongRunsWhole) {
  constexpr int64_t kCount = (int64_t{1} << 19) + 7;
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 256);
  SafetensorsWriter writer(path_, {{"w", DType::bf16, {kCount}}});
  writer.write_f32("w", 0, values.data(), kCount);
  writer.finish();
  const SafetensorsFile file(path_);
  std::vector<float> back(kCount);
  read_as_f32(*file.find("w"), 0, kCount, back.data());
  EXPECT_EQ(back, values);
}

TEST_F(SafetensorsWriterTest, OnlyFinishBringsTheNameIntoBeing) {
  {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {1}}});
    writer.write("w", 0, "x", 1);
    EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"out.safetensors.partial"}));
    writer.finish();
    EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"out.safetensors"}));
  }
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"out.safetensors"}));
}

TEST_F(SafetensorsWriterTest, LeavesTheFormerFileWhenNotFinished) {
  write_bytes(path_, "former");
  {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {1}}});
    writer.write("w", 0, "x", 1);
  }
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"out.safetensors"}));
  EXPECT_EQ(read_bytes(path_), "former");
}

TEST_F(SafetensorsWriterTest, ReplacesTheFormerFileAndAStalePartial) {
  write_bytes(path_, "former");
  write_bytes(path_ + ".partial", std::string(100'000, 'x'));
  SafetensorsWriter writer(path_, {{"w", DType::u8, {1}}});
  writer.write("w", 0, "x", 1);
  writer.finish();
  EXPECT_EQ(SafetensorsFile(path_).find("w")->data[0], std::byte{'x'});
}

TEST_F(SafetensorsWriterTest, RefusesToFinishWithBytesMissing) {
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{0, 0}, {0, 3}, {1, 3}}) {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {4}}, {"z", DType::u8, {0}}});
    writer.write("w", offset, "abcd", bytes);
    expect_error(ExitCode::internal, {"\"w\"", "not written whole"}, [&] { writer.finish(); });
  }
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(SafetensorsWriterTest, RefusesAHoleBetweenPieces) {
  SafetensorsWriter writer(path_, {{"w", DType::u8, {5}}});
  writer.write("w", 0, "ab", 2);
  writer.write("w", 3, "de", 2);
  expect_error(ExitCode::internal, {"not written whole"}, [&] { writer.finish(); });
  writer.write("w", 2, "c", 1);
  writer.finish();
  EXPECT_EQ(std::memcmp(SafetensorsFile(path_).find("w")->data, "abcde", 5), 0);
}

TEST_F(SafetensorsWriterTest, RefusesBytesTwice) {
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{2, 2}, {1, 2}, {3, 2}, {0, 8}, {2, 1}}) {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {8}}});
    writer.write("w", 2, "ab", 2);
    expect_error(ExitCode::internal, {"\"w\"", "written twice"}, [&] { writer.write("w", offset, "abcdefgh", bytes); });
  }
}

TEST_F(SafetensorsWriterTest, RefusesBytesOutsideATensorAndUndeclaredTensors) {
  SafetensorsWriter writer(path_, {{"w", DType::u8, {4}}});
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{4, 1}, {0, 5}, {-1, 1}, {0, -1}, {INT64_MAX, 1}}) {
    expect_error(ExitCode::internal, {"\"w\"", "which has 4"}, [&] { writer.write("w", offset, "abcdef", bytes); });
  }
  expect_error(ExitCode::internal, {"\"x\"", "never declared"}, [&] { writer.write("x", 0, "a", 1); });
}

TEST_F(SafetensorsWriterTest, RefusesATensorDeclaredTwice) {
  expect_error(ExitCode::internal, {"\"w\"", "twice"}, [&] {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {1}}, {"w", DType::f32, {1}}});
  });
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(SafetensorsWriterTest, SaysWhatToDoWhenTheDirectoryIsNotThere) {
  expect_error(ExitCode::io, {"none/out.safetensors.partial", "No such file or directory", "check the path"},
               [&] { SafetensorsWriter writer(directory_ / "none/out.safetensors", {}); });
}

TEST_F(SafetensorsWriterTest, SparesADirectoryThatBearsThePartialsName) {
  std::filesystem::create_directory(path_ + ".partial");
  write_bytes(path_ + ".partial/precious", "p");
  expect_error(ExitCode::io, {"out.safetensors.partial"}, [&] { SafetensorsWriter writer(path_, {}); });
  EXPECT_EQ(read_bytes(path_ + ".partial/precious"), "p");
}

TEST_F(SafetensorsWriterTest, RefusesAtOnceWhenTheFileCannotHaveItsSize) {
  const FileSizeLimit limit(4096);
  expect_error(ExitCode::io, {"reserve", "out.safetensors.partial", "File too large", "choose another directory"}, [&] {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {8192}}});
  });
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(SafetensorsWriterTest, ReportsAWriteThatFailsAndLeavesNothing) {
  {
    SafetensorsWriter writer(path_, {{"w", DType::u8, {8192}}});
    const std::string bytes(8192, 'x');
    const FileSizeLimit limit(4096);
    expect_error(ExitCode::io, {"cannot write", "out.safetensors.partial", "File too large"},
                 [&] { writer.write("w", 0, bytes.data(), 8192); });
    expect_error(ExitCode::internal, {"not written whole"}, [&] { writer.finish(); });
  }
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(SafetensorsWriterTest, ReportsARenameThatFailsAndLeavesNothing) {
  std::filesystem::create_directory(path_);
  {
    SafetensorsWriter writer(path_, {});
    expect_error(ExitCode::io, {"cannot rename", "Is a directory"}, [&] { writer.finish(); });
  }
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"out.safetensors"}));
}

}  // namespace
}  // namespace megatrain
