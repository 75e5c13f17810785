#include "megatrain/gguf/gguf_file.h"

#include <filesystem>

#include "tests/support/read_gguf.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

GgufMetadata some_metadata() {
  GgufMetadata metadata;
  metadata.add("general.architecture", std::string("llama"));
  metadata.add("whole", uint32_t{4'000'000'000});
  metadata.add("signed", int32_t{-5});
  metadata.add("number", 1.5f);
  metadata.add("yes", true);
  metadata.add("texts", std::vector<std::string>{"a", "", "\xE2\x96\x81"});
  metadata.add("numbers", std::vector<float>{0.5f, -1.0f});
  metadata.add("kinds", std::vector<int32_t>{1, 3, 6});
  return metadata;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  encode_gguf(values.data(), std::ssize(values), GgufType::f32, "x", bytes);
  return bytes;
}

}  // namespace

TEST(GgufFile, ReadsBackAsItWasWritten) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.gguf";
  GgufFile file(path, some_metadata(), {{"three", {3}, GgufType::f32}, {"matrix", {2, 2}, GgufType::f32}});
  file.write(0, bytes_of({1, 2}));
  file.write(0, bytes_of({3}));
  file.write(1, bytes_of({4, 5, 6, 7}));
  EXPECT_FALSE(fs::exists(path));
  file.finish();
  EXPECT_FALSE(fs::exists(path + ".partial"));
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(path)), file.bytes());

  const ReadGguf read = read_gguf(path);
  EXPECT_EQ(read.keys.front(), "general.architecture");
  EXPECT_EQ(read.metadata, (nlohmann::json{{"general.architecture", "llama"},
                                           {"whole", 4'000'000'000},
                                           {"signed", -5},
                                           {"number", 1.5},
                                           {"yes", true},
                                           {"texts", {"a", "", "\xE2\x96\x81"}},
                                           {"numbers", {0.5, -1.0}},
                                           {"kinds", {1, 3, 6}}}));
  EXPECT_EQ(read.tensors.at("three").values, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read.tensors.at("matrix").values, (std::vector<double>{4, 5, 6, 7}));
  EXPECT_EQ(read.tensors.at("matrix").shape, (std::vector<int64_t>{2, 2}));
}

TEST(GgufFile, LeavesNothingBehindUnlessFinished) {
  const TemporaryDirectory directory;
  { const GgufFile file(directory / "model.gguf", some_metadata(), {{"three", {3}, GgufType::f32}}); }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(GgufFile, TakesThePlaceOfNothing) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.gguf", partial = path + ".partial";
  for (const std::string& text : {std::string("GGUF of someone"), std::string(5000, '\0'), std::string("a letter")}) {
    write_bytes(partial, text);
    expect_error(ExitCode::io, {partial, "already exists"}, [&] { const GgufFile file(path, some_metadata(), {}); });
    EXPECT_EQ(read_bytes(partial), text);
  }
  fs::remove(partial);
  fs::create_directory(path);
  expect_error(ExitCode::bad_config, {path, "already exists"}, [&] { const GgufFile file(path, some_metadata(), {}); });
}

TEST(GgufFile, IsWrittenByOneAtATime) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.gguf";
  GgufFile file(path, some_metadata(), {{"three", {3}, GgufType::f32}});
  expect_error(ExitCode::bad_config, {"another export is writing " + path},
               [&] { const GgufFile second(path, some_metadata(), {}); });
  file.write(0, bytes_of({1, 2, 3}));
  file.finish();
  EXPECT_EQ(read_gguf(path).tensors.at("three").values, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(listing(directory.path()), std::set<std::string>{"model.gguf"});
}

}  // namespace megatrain
