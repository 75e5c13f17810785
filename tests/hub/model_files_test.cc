#include "megatrain/hub/model_files.h"

#include <cstring>

#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

// A file of one-byte tensors; each byte is the first character of the tensor's name.
std::string file_of_names(const std::vector<std::string>& names) {
  std::string header = "{";
  std::string data;
  for (const std::string& name : names) {
    if (header.size() > 1) header += ',';
    header += "\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + 1) + "]}";
    data += name.front();
  }
  return safetensors_bytes(header + "}", data);
}

class ModelFilesTest : public testing::Test {
 protected:
  void index(const std::string& weight_map) {
    write_bytes(directory_ / "model.safetensors.index.json",
                R"({"metadata":{"total_size":4},"weight_map":)" + weight_map + "}");
  }
  void shard(int number, const std::vector<std::string>& names) {
    write_bytes(directory_ / ("model-0000" + std::to_string(number) + "-of-00002.safetensors"), file_of_names(names));
  }
  void good_shards() {
    index(R"({"a":"model-00001-of-00002.safetensors","c":"model-00001-of-00002.safetensors",)"
          R"("b":"model-00002-of-00002.safetensors"})");
    shard(1, {"a", "c"});
    shard(2, {"b"});
  }
  void expect_refused(std::initializer_list<std::string> parts) {
    expect_error(ExitCode::bad_input, parts, [&] { ModelFiles files(directory_.path()); });
  }
  TemporaryDirectory directory_;
};

TEST_F(ModelFilesTest, ReadsASingleFile) {
  write_bytes(directory_ / "model.safetensors", file_of_names({"b", "a"}));
  const ModelFiles model(directory_.path());
  ASSERT_EQ(model.tensors().size(), 2u);
  EXPECT_EQ(model.tensors()[0]->name, "a");
  EXPECT_EQ(model.find("b")->data[0], std::byte{'b'});
  EXPECT_EQ(model.find("x"), nullptr);
}

TEST_F(ModelFilesTest, ReadsAFileByItsPath) {
  write_bytes(directory_ / "state-3.safetensors", file_of_names({"a"}));
  EXPECT_NE(ModelFiles(directory_ / "state-3.safetensors").find("a"), nullptr);
}

TEST_F(ModelFilesTest, ReadsShardsInNameOrder) {
  good_shards();
  const ModelFiles model(directory_.path());
  std::string names;
  for (const StoredTensor* tensor : model.tensors()) names += tensor->name;
  EXPECT_EQ(names, "abc");
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(model.find(name)->data[0], std::byte(name[0]));
  EXPECT_TRUE(model.file_of(*model.find("b")).ends_with("model-00002-of-00002.safetensors"));
}

TEST_F(ModelFilesTest, StaysValidWhenMoved) {
  good_shards();
  ModelFiles model(directory_.path());
  const ModelFiles moved = std::move(model);
  EXPECT_EQ(moved.find("b")->data[0], std::byte{'b'});
  EXPECT_TRUE(moved.file_of(*moved.find("a")).ends_with("model-00001-of-00002.safetensors"));
}

TEST_F(ModelFilesTest, ReadsShardsThatAreLinks) {
  good_shards();
  std::filesystem::rename(directory_ / "model-00002-of-00002.safetensors", directory_ / "blob");
  std::filesystem::create_symlink("blob", directory_ / "model-00002-of-00002.safetensors");
  EXPECT_NE(ModelFiles(directory_.path()).find("b"), nullptr);
}

TEST_F(ModelFilesTest, NamesTheMissingShard) {
  good_shards();
  std::filesystem::remove(directory_ / "model-00002-of-00002.safetensors");
  expect_refused({"1 of 2 shards", "\"model-00002-of-00002.safetensors\"", "download the missing files"});
}

TEST_F(ModelFilesTest, NamesTheDamagedShard) {
  good_shards();
  std::filesystem::resize_file(directory_ / "model-00001-of-00002.safetensors", 50);
  expect_refused({"model-00001-of-00002.safetensors", "cut short"});
}

TEST_F(ModelFilesTest, RefusesAnIndexThatNamesATensorItsShardLacks) {
  good_shards();
  shard(2, {"x"});
  expect_refused({"index.json", "model-00002-of-00002.safetensors", "tensor \"b\"", "not in it"});
}

TEST_F(ModelFilesTest, RefusesATensorInTwoShards) {
  good_shards();
  shard(2, {"b", "c"});
  expect_refused({"tensor \"c\"", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"});
}

TEST_F(ModelFilesTest, RefusesATensorTwiceInTheIndex) {
  index(R"({"a":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"})");
  expect_refused({"index.json", "duplicate key \"a\""});
}

TEST_F(ModelFilesTest, RefusesShardNamesThatLeaveTheDirectory) {
  for (const char* name : {"../m.safetensors", "/etc/passwd", "sub/m.safetensors", "..", ""}) {
    index(R"({"a":")" + std::string(name) + "\"}");
    expect_refused({"index.json", "tensor \"a\"", "plain file name"});
  }
}

TEST_F(ModelFilesTest, RefusesAnIndexWithoutAWeightMap) {
  for (const char* text : {"{}", "[]", "3", R"({"weight_map":[]})", R"({"weight_map":{}})"}) {
    write_bytes(directory_ / "model.safetensors.index.json", text);
    expect_refused({"index.json", "weight_map"});
  }
  index(R"({"a":3})");
  expect_refused({"index.json", "tensor \"a\"", "file name"});
}

TEST_F(ModelFilesTest, SaysToConvertPickledWeights) {
  write_bytes(directory_ / "pytorch_model.bin", "x");
  expect_refused({"pytorch_model", "convert them to safetensors"});
}

TEST_F(ModelFilesTest, SaysToConvertPickledShards) {
  write_bytes(directory_ / "pytorch_model.bin.index.json", "{}");
  expect_refused({"pytorch_model", "convert them to safetensors"});
}

TEST_F(ModelFilesTest, RefusesADirectoryWithoutWeights) {
  expect_refused({directory_.path(), "model.safetensors", "model.safetensors.index.json"});
}

TEST_F(ModelFilesTest, RefusesPathsThatAreNoModel) {
  expect_error(ExitCode::bad_input, {"nothing-here", "does not exist"},
               [&] { ModelFiles files(directory_ / "nothing-here"); });
  write_bytes(directory_ / "weights.bin", "x");
  expect_error(ExitCode::bad_input, {"weights.bin", ".safetensors"},
               [&] { ModelFiles files(directory_ / "weights.bin"); });
}

TEST_F(ModelFilesTest, ChecksParametersAgainstTheirSpec) {
  write_bytes(directory_ / "model.safetensors",
              safetensors_bytes(R"({"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                                R"("q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[12,14]}})",
                                std::string(14, 'x')));
  const ModelFiles model(directory_.path());
  EXPECT_EQ(&model.parameter("w", {2, 3}), model.find("w"));
  expect_error(ExitCode::bad_input, {"no tensor \"v\"", "config.json"}, [&] { model.parameter("v", {2, 3}); });
  expect_error(ExitCode::bad_input, {"model.safetensors", "\"w\"", "(2, 3)", "(3, 2)"}, [&] {
    model.parameter("w", {3, 2});
  });
  expect_error(ExitCode::bad_input, {"\"q\"", "F8_E4M3", "BF16"}, [&] { model.parameter("q", {2}); });
}

TEST_F(ModelFilesTest, AFileThatIsCutWhileItIsReadEndsWithASentenceThatNamesIt) {
  const std::string path = directory_ / "model.safetensors";
  const int64_t bytes = int64_t{1} << 18;
  write_bytes(path, safetensors_bytes(R"({"a":{"dtype":"U8","shape":[262144],"data_offsets":[0,262144]}})",
                                      std::string(static_cast<size_t>(bytes), 'x')));
  const auto whole = static_cast<int64_t>(std::filesystem::file_size(path));
  {
    const ModelFiles files(directory_.path());
    files.check_whole();
    std::filesystem::resize_file(path,
                                 static_cast<uintmax_t>(whole - 3));  // inside the last page, which reads as zeros
    expect_error(ExitCode::io, {path, "truncated while in use"}, [&] { files.check_whole(); });
  }
  const auto read_cut = [&] {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(whole));
    const ModelFiles files(directory_.path());
    std::filesystem::resize_file(path, 0);
    const StoredTensor& tensor = *files.find("a");
    ::_exit(std::to_integer<int>(*const_cast<const volatile std::byte*>(tensor.data + bytes - 1)) == 'x' ? 0 : 1);
  };
  EXPECT_EXIT(read_cut(), testing::ExitedWithCode(static_cast<int>(ExitCode::io)),
              "megatrain: cannot read .*model.safetensors: the file was truncated");
}

}  // namespace
}  // namespace megatrain
