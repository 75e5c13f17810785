#include "megatrain/hub/export.h"

#include <cstring>

#include "megatrain/base/rng.h"
#include "megatrain/hub/convert.h"
#include "megatrain/io/json_file.h"
#include "megatrain/hub/model_files.h"
#include "tests/support/said.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class ModelExportTest : public testing::Test {
 protected:
  ExportRequest request(std::vector<TensorDeclaration> tensors, int64_t max_shard_bytes = kMaxShardBytes) const {
    return {out_, std::move(tensors), "{\"model_type\": \"llama\"}\n", "", "", max_shard_bytes};
  }
  static void fill(ModelExport& model, const std::vector<TensorDeclaration>& tensors, float value = 1) {
    for (const TensorDeclaration& tensor : tensors) {
      const std::vector<float> data(static_cast<size_t>(tensor.elements()), value);
      model.write_f32(tensor.name, 0, data.data(), tensor.elements());
    }
  }
  // A finished export with one tensor.
  void export_one(float value) const {
    const std::vector<TensorDeclaration> tensors = {{"w", DType::f32, {1}}};
    ModelExport model(request(tensors));
    fill(model, tensors, value);
    model.finish();
  }
  float exported() const {
    const ModelFiles model(out_);
    float value = 0;
    read_as_f32(*model.find("w"), 0, 1, &value);
    return value;
  }
  TemporaryDirectory directory_;
  const std::string out_ = directory_ / "model";
};

TEST_F(ModelExportTest, WritesOneFileWhenItFits) {
  const std::vector<TensorDeclaration> tensors = {{"b", DType::bf16, {2, 3}}, {"a", DType::f32, {4}}};
  ModelExport model(request(tensors));
  fill(model, tensors, 1.5f);
  const ExportReport report = model.finish();
  EXPECT_EQ(listing(out_), (std::set<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model"}));
  EXPECT_EQ(read_bytes(out_ + "/config.json"), "{\"model_type\": \"llama\"}\n");
  EXPECT_EQ(report.shards, (std::vector<std::string>{"model.safetensors"}));
  EXPECT_EQ(report.tensor_bytes, 28);
  const ModelFiles files(out_);
  EXPECT_EQ(files.files()[0].metadata().at("format"), "pt");
  EXPECT_EQ(files.parameter("b", {2, 3}).dtype, StoredType::bf16);
  float value[6];
  read_as_f32(*files.find("b"), 0, 6, value);
  for (const float v : value) EXPECT_EQ(v, 1.5f);
}

TEST_F(ModelExportTest, SplitsIntoShardsNoLargerThanTheLimit) {
  std::vector<TensorDeclaration> tensors;
  for (int i = 0; i < 25; ++i) tensors.push_back({"layer." + std::to_string(i), DType::bf16, {500 + 37 * i}});
  constexpr int64_t kLimit = 6000;
  ModelExport model(request(tensors, kLimit));
  fill(model, tensors);
  const ExportReport report = model.finish();
  ASSERT_GT(report.shards.size(), 5u);
  std::set<std::string> expected = {"config.json", "model.safetensors.index.json"};
  for (size_t i = 0; i < report.shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, report.shards.size());
    EXPECT_EQ(report.shards[i], name);
    expected.insert(name);
    EXPECT_LE(static_cast<int64_t>(fs::file_size(out_ + "/" + name)), kLimit);
    EXPECT_EQ(SafetensorsFile(out_ + "/" + name).metadata().at("format"), "pt");
  }
  EXPECT_EQ(listing(out_), expected);
  const nlohmann::json index = read_json_file(out_ + "/model.safetensors.index.json");
  EXPECT_EQ(index["weight_map"].size(), tensors.size());
  int64_t total = 0;
  for (const TensorDeclaration& tensor : tensors) total += tensor.bytes();
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(ModelFiles(out_).tensors().size(), tensors.size());
}

TEST_F(ModelExportTest, KeepsTheOrderOfTensorsAcrossShards) {
  const std::vector<TensorDeclaration> tensors = {
      {"c", DType::u8, {600}}, {"a", DType::u8, {600}}, {"b", DType::u8, {600}}};
  ModelExport model(request(tensors, 1200));
  const std::string bytes(600, 'x');
  for (const char* name : {"a", "b", "c"}) model.write(name, 0, bytes.data(), 600);
  model.finish();
  const nlohmann::json map = read_json_file(out_ + "/model.safetensors.index.json")["weight_map"];
  EXPECT_EQ(map["c"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(map["a"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(map["b"], "model-00003-of-00003.safetensors");
}

TEST_F(ModelExportTest, FillsAShardToTheLimitAndOpensTheNextOneByteLater) {
  const std::vector<TensorDeclaration> tensors = {{"a", DType::u8, {1000}}, {"b", DType::u8, {1000}}};
  const std::string bytes(1000, 'x');
  const auto shards = [&](int64_t limit) {
    ModelExport model(request(tensors, limit));
    for (const char* name : {"a", "b"}) model.write(name, 0, bytes.data(), 1000);
    return model.finish().shards.size();
  };
  int64_t most = 2000, least = 3000;  // the largest limit that gives two files, the smallest that gives one
  while (least - most > 1) {
    const int64_t limit = (most + least) / 2;
    (shards(limit) == 1 ? least : most) = limit;
  }
  EXPECT_EQ(shards(most), 2u);
  EXPECT_EQ(shards(least), 1u);
  EXPECT_GE(least, static_cast<int64_t>(fs::file_size(out_ + "/model.safetensors")));
  EXPECT_LT(least, 2700);
}

TEST_F(ModelExportTest, GivesATensorLargerThanTheLimitAShardOfItsOwn) {
  const std::vector<TensorDeclaration> tensors = {
      {"a", DType::f32, {10}}, {"big", DType::f32, {5000}}, {"z", DType::f32, {10}}};
  ModelExport model(request(tensors, 1000));
  fill(model, tensors);
  EXPECT_EQ(model.finish().shards.size(), 3u);
}

TEST_F(ModelExportTest, RoundTripsEveryTensorByteForByte) {
  const std::string source = directory_ / "source";
  fs::create_directory(source);
  std::vector<TensorDeclaration> tensors;
  {
    tensors = {{"half", DType::f16, {65536}}, {"brain", DType::bf16, {65536}}, {"full", DType::f32, {3, 1000}}};
    SafetensorsWriter writer(source + "/model.safetensors", tensors);
    std::vector<uint16_t> patterns(65536);  // every one, NaNs included
    for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
    std::vector<uint32_t> words(3000);
    for (size_t i = 0; i < words.size(); ++i) words[i] = philox(1, 2, i)[0];
    writer.write("half", 0, patterns.data(), 131072);
    writer.write("brain", 0, patterns.data(), 131072);
    writer.write("full", 0, words.data(), 12000);
    writer.finish();
  }
  const ModelFiles before(source);
  ModelExport model(request(tensors, 200'000));
  for (const StoredTensor* tensor : before.tensors()) {
    constexpr int64_t kPiece = 777;
    float piece[kPiece];
    for (int64_t begin = 0; begin < tensor->elements(); begin += kPiece) {
      const int64_t count = std::min(kPiece, tensor->elements() - begin);
      read_as_f32(*tensor, begin, count, piece);
      model.write_f32(tensor->name, begin, piece, count);
    }
  }
  EXPECT_EQ(model.finish().shards.size(), 2u);
  const ModelFiles after(out_);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const StoredTensor* tensor : before.tensors()) {
    const StoredTensor* twin = after.find(tensor->name);
    ASSERT_NE(twin, nullptr);
    EXPECT_EQ(twin->dtype, tensor->dtype);
    EXPECT_EQ(twin->shape, tensor->shape);
    ASSERT_EQ(twin->bytes, tensor->bytes);
    EXPECT_EQ(std::memcmp(twin->data, tensor->data, static_cast<size_t>(tensor->bytes)), 0) << tensor->name;
  }
}

TEST_F(ModelExportTest, CopiesTokenizerFilesAndLicencesOnly) {
  const std::string source = directory_ / "source";
  fs::create_directories(source + "/LICENSE-directory");
  const std::set<std::string> wanted = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "generation_config.json",
                                        "LICENSE",
                                        "LICENSE.txt"};
  for (const std::string& name : wanted) write_bytes(source + "/" + name, std::string("of ") + name + '\0' + "\xff");
  for (const char* name : {"README.md", "config.json", "model.safetensors", "training_args.bin", ".gitattributes"}) {
    write_bytes(source + "/" + name, "x");
  }
  fs::create_directories(source + "/files");
  fs::rename(source + "/vocab.json", source + "/files/vocab");
  fs::create_symlink("files/vocab", source + "/vocab.json");
  ExportRequest wish = request({});
  wish.source_directory = source;
  ModelExport model(wish);
  const ExportReport report = model.finish();
  EXPECT_EQ(std::set<std::string>(report.copied.begin(), report.copied.end()), wanted);
  std::set<std::string> expected = wanted;
  expected.insert({"config.json", "model.safetensors"});
  EXPECT_EQ(listing(out_), expected);
  for (const std::string& name : wanted) {
    EXPECT_EQ(read_bytes(out_ + "/" + name), std::string("of ") + name + '\0' + "\xff") << name;
    EXPECT_FALSE(fs::is_symlink(out_ + "/" + name)) << name;
  }
  EXPECT_NE(read_bytes(out_ + "/config.json"), "x");
}

TEST_F(ModelExportTest, RefusesALinkOutOfTheModelAndLeavesNothing) {
  const std::string source = directory_ / "source";
  fs::create_directories(source);
  write_bytes(directory_ / "secret", "private");
  fs::create_symlink("../secret", source + "/LICENSE");
  ExportRequest wish = request({});
  wish.source_directory = source;
  expect_error(ExitCode::bad_input, {source + "/LICENSE", directory_ / "secret"}, [&] { ModelExport model(wish); });
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"secret", "source"}));
}

TEST_F(ModelExportTest, CopiesNamedTemplatesAndReplacesThem) {
  const std::string source = directory_ / "source", folder = "/additional_chat_templates";
  fs::create_directories(source + folder + "/deeper.jinja");
  write_bytes(source + folder + "/tool_use.jinja", "tools");
  write_bytes(source + folder + "/rag.jinja", "rag");
  write_bytes(source + folder + "/README.md", "x");
  ExportRequest wish = request({});
  wish.source_directory = source;
  for (int round = 0; round < 2; ++round) {
    const ExportReport report = ModelExport(wish).finish();
    EXPECT_EQ(report.copied, (std::vector<std::string>{"additional_chat_templates/rag.jinja",
                                                       "additional_chat_templates/tool_use.jinja"}));
    EXPECT_EQ(report.kept, "");
    EXPECT_EQ(listing(out_ + folder), (std::set<std::string>{"rag.jinja", "tool_use.jinja"}));
    EXPECT_EQ(read_bytes(out_ + folder + "/tool_use.jinja"), "tools");
  }
  fs::rename(out_, out_ + ".partial");  // as a killed export leaves it
  wish.chat_template = "the run's own";
  EXPECT_EQ(ModelExport(wish).finish().copied, (std::vector<std::string>{"chat_template.jinja"}));
  EXPECT_FALSE(fs::exists(out_ + folder));
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model", "source"}));
}

TEST_F(ModelExportTest, KeepsAFormerDirectoryWithAnotherFileAmongItsNamedTemplates) {
  for (const char* name : {"notes.txt", "folder.jinja/notes.txt"}) {
    export_one(1);
    const fs::path foreign = fs::path(out_) / "additional_chat_templates" / name;
    fs::create_directories(foreign.parent_path());
    write_bytes(foreign.string(), "precious");
    const ExportReport report = ModelExport(request({})).finish();
    ASSERT_NE(report.kept, "") << name;
    EXPECT_EQ(read_bytes(report.kept + "/additional_chat_templates/" + name), "precious");
    fs::remove_all(report.kept);
    fs::remove_all(out_);
  }
}

TEST_F(ModelExportTest, ReplacesAFormerExport) {
  export_one(1);
  write_bytes(out_ + "/model-00001-of-00002.safetensors", "stale");
  export_one(2);
  EXPECT_EQ(exported(), 2.0f);
  EXPECT_EQ(listing(out_), (std::set<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model"}));
}

TEST_F(ModelExportTest, AFormerExportStandsUntilTheNewOneIsWhole) {
  export_one(1);
  const std::vector<TensorDeclaration> tensors = {{"w", DType::f32, {1}}};
  {
    ModelExport model(request(tensors));
    EXPECT_EQ(exported(), 1.0f);
    expect_error(ExitCode::internal, {"\"w\"", "not written whole"}, [&] { model.finish(); });
    EXPECT_EQ(exported(), 1.0f);
  }
  EXPECT_EQ(exported(), 1.0f);
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model"}));
}

TEST_F(ModelExportTest, KeepsAFormerDirectoryThatHoldsOtherFiles) {
  export_one(1);
  write_bytes(out_ + "/notes.txt", "precious");
  const std::vector<TensorDeclaration> tensors = {{"w", DType::f32, {1}}};
  for (int round = 0; round < 2; ++round) {
    ModelExport model(request(tensors));
    fill(model, tensors, 2);
    ExportReport report;
    const std::string said = logged_by([&] { report = model.finish(); });
    EXPECT_NE(said.find("model.previous"), std::string::npos) << said;
    EXPECT_EQ(report.kept, fs::weakly_canonical(out_).string() + (round == 0 ? ".previous" : ".previous-2"));
    EXPECT_EQ(read_bytes(report.kept + "/notes.txt"), "precious");
    EXPECT_EQ(exported(), 2.0f);
    write_bytes(out_ + "/notes.txt", "precious");
  }
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model", "model.previous", "model.previous-2"}));
}

TEST_F(ModelExportTest, ReplacesThroughALinkAndATrailingSlash) {
  export_one(1);
  fs::rename(out_, directory_ / "real");
  fs::create_directory_symlink("real", out_);
  ExportRequest wish = request({{"w", DType::f32, {1}}});
  wish.directory += "/";
  ModelExport model(wish);
  fill(model, wish.tensors, 3);
  model.finish();
  EXPECT_TRUE(fs::is_symlink(out_));
  EXPECT_EQ(exported(), 3.0f);
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model", "real"}));
}

TEST_F(ModelExportTest, CreatesMissingParents) {
  ExportRequest wish = request({});
  wish.directory = directory_ / "run/deep/model";
  ModelExport model(wish);
  model.finish();
  EXPECT_TRUE(fs::exists(directory_ / "run/deep/model/config.json"));
}

TEST_F(ModelExportTest, SweepsAwayAnExportThatWasKilled) {
  fs::create_directory(out_ + ".partial");
  write_bytes(out_ + ".partial/model-00001-of-00002.safetensors.partial", "x");
  write_bytes(out_ + ".partial/config.json", "x");
  export_one(4);
  EXPECT_EQ(exported(), 4.0f);
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model"}));
}

TEST_F(ModelExportTest, SparesADirectoryThatBearsThePartialsName) {
  fs::create_directory(out_ + ".partial");
  write_bytes(out_ + ".partial/notes.txt", "precious");
  expect_error(ExitCode::io, {"model.partial", "in the way"}, [&] { ModelExport model(request({})); });
  EXPECT_EQ(read_bytes(out_ + ".partial/notes.txt"), "precious");
}

TEST_F(ModelExportTest, LeavesNothingWhenItsDeclarationsAreWrong) {
  expect_error(ExitCode::internal, {"\"w\"", "twice"}, [&] {
    ModelExport model(request({{"w", DType::f32, {1}}, {"w", DType::f32, {1}}}));
  });
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(ModelExportTest, LeavesNothingWhenTheCallerThrows) {
  EXPECT_THROW(
      {
        ModelExport model(request({{"w", DType::f32, {2}}}));
        const float value = 1;
        model.write_f32("w", 0, &value, 1);
        throw std::runtime_error("stopped");
      },
      std::runtime_error);
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(ModelExportTest, RefusesToReplaceTheModelItReads) {
  export_one(1);
  ExportRequest wish = request({});
  wish.source_directory = out_ + "/../model";
  expect_error(ExitCode::bad_config, {out_, "read from", "choose another"}, [&] { ModelExport model(wish); });
  EXPECT_EQ(exported(), 1.0f);
}

TEST_F(ModelExportTest, RefusesAFileInPlaceOfADirectory) {
  write_bytes(out_, "x");
  expect_error(ExitCode::bad_config, {out_, "is a file"}, [&] { ModelExport model(request({})); });
  EXPECT_EQ(read_bytes(out_), "x");
}

TEST_F(ModelExportTest, RefusesASourceThatIsNoDirectory) {
  ExportRequest wish = request({});
  wish.source_directory = directory_ / "nowhere";
  expect_error(ExitCode::bad_input, {"nowhere", "not a directory"}, [&] { ModelExport model(wish); });
  EXPECT_TRUE(listing(directory_.path()).empty());
}

TEST_F(ModelExportTest, RefusesUndeclaredTensors) {
  ModelExport model(request({}));
  const float value = 0;
  expect_error(ExitCode::internal, {"\"w\"", "never declared"}, [&] { model.write_f32("w", 0, &value, 1); });
}

}  // namespace
}  // namespace megatrain
