#include "megatrain/hub/hash.h"

#include "megatrain/hub/safetensors_writer.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

// Goldens: Python's xxhash.xxh3_128_hexdigest(text).
TEST(Hash, EqualsTheCanonicalTextOfOtherImplementations) {
  EXPECT_EQ(xxh3_128("", 0), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128("megatrain", 9), "c8ee169c663501d38fb3e8ea874a7389");
  std::string long_text;
  for (int i = 0; i < 1000; ++i) long_text += "0123456789";
  EXPECT_EQ(xxh3_128(long_text.data(), long_text.size()), "26b9e8677f17f17f2da683cfe7106d98");
}

TEST(Hash, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i);
  Xxh3 hash;
  for (size_t begin = 0, piece = 1; begin < text.size(); begin += piece, piece = piece % 97 + 1) {
    piece = std::min(piece, text.size() - begin);
    hash.update(text.data() + begin, piece);
  }
  EXPECT_EQ(hash.digest(), xxh3_128(text.data(), text.size()));
  hash.reset();
  EXPECT_EQ(hash.digest(), xxh3_128("", 0));
}

void feed(StateHasher& hasher, const std::string& name, const std::string& bytes) {
  hasher.update(name, bytes.data(), bytes.size() / 2);
  hasher.update(name, bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2);
}

TEST(Hash, CoversAllTensorsForStateAndNoMomentsForWeights) {
  StateHasher hasher;
  feed(hasher, "a", "AAAA");
  feed(hasher, "a.exp_avg", "mm");
  feed(hasher, "a.exp_avg_sq", "vv");
  feed(hasher, "b", "BBB");
  const StateHash hash = hasher.finish(7);
  EXPECT_EQ(hash.state, xxh3_128("AAAAmmvvBBB", 11));
  EXPECT_EQ(hash.weights, xxh3_128("AAAABBB", 7));
  EXPECT_EQ(hash.tensors.at("a"), xxh3_128("AAAA", 4));
  EXPECT_EQ(hash.tensors.at("a.exp_avg_sq"), xxh3_128("vv", 2));
  EXPECT_EQ(hash.tensors.size(), 4u);
  EXPECT_EQ(hash.step, 7);
}

TEST(Hash, HasNoStateWithoutMoments) {
  StateHasher hasher;
  feed(hasher, "a", "AAAA");
  const StateHash hash = hasher.finish();
  EXPECT_EQ(hash.state, "");
  EXPECT_EQ(hash.weights, xxh3_128("AAAA", 4));
  const nlohmann::json json = to_json(hash);
  EXPECT_TRUE(json["state"].is_null());
  EXPECT_TRUE(json["step"].is_null());
  EXPECT_EQ(json["weights"], hash.weights);
  EXPECT_EQ(json["tensors"]["a"], hash.weights);
}

TEST(Hash, RefusesTensorsOutOfOrder) {
  StateHasher hasher;
  feed(hasher, "b", "x");
  expect_error(ExitCode::internal, {"ascending order"}, [&] { hasher.update("a", "x", 1); });
}

TEST(Hash, OfAFileIsOverItsStoredBytesInNameOrder) {
  TemporaryDirectory directory;
  SafetensorsWriter writer(directory / "state-3.safetensors",
                           {{"w", DType::bf16, {2}},
                            {"w.exp_avg_sq", DType::f32, {1}},
                            {"w.exp_avg", DType::f32, {1}},
                            {"b", DType::f32, {1}}},
                           {{"step", "3"}});
  writer.write("w", 0, "WWWW", 4);
  writer.write("w.exp_avg_sq", 0, "vvvv", 4);
  writer.write("w.exp_avg", 0, "mmmm", 4);
  writer.write("b", 0, "BBBB", 4);
  writer.finish();
  const StateHash hash = hash_file(directory / "state-3.safetensors");
  EXPECT_EQ(hash.state, xxh3_128("BBBBWWWWmmmmvvvv", 16));
  EXPECT_EQ(hash.weights, xxh3_128("BBBBWWWW", 8));
  EXPECT_EQ(hash.step, 3);
  EXPECT_EQ(to_json(hash)["step"], 3);
}

// int8 moments: codes of 600 elements need 3 scales, or scales by row. Any other shape would be read past its end.
TEST(Hash, OfCodesRefusesScalesThatAreNotTheirs) {
  TemporaryDirectory directory;
  const auto hash_with = [&](const std::vector<int64_t>& shape) {
    const std::string path = directory / "state.safetensors";
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    SafetensorsWriter writer(path, {{"w.exp_avg", DType::u8, {600}}, {"w.exp_avg.scale", DType::f32, shape}},
                             {{"step", "1"}, {kStoredMoments, "int8"}});
    const std::vector<uint8_t> codes(600, 127);
    const std::vector<float> scales(static_cast<size_t>(count), 2.0f);
    writer.write("w.exp_avg", 0, codes.data(), 600);
    writer.write_f32("w.exp_avg.scale", 0, scales.data(), count);
    writer.finish();
    return hash_file(path).tensors.at("w.exp_avg");
  };
  const std::vector<float> values(600, 2.0f);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, {2, 2}, {600, 1}})
    EXPECT_EQ(hash_with(shape), xxh3_128(values.data(), values.size() * sizeof(float)));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1}, {2}, {4}, {3, 2}, {7, 1}, {250, 1}, {450, 1}})
    expect_error(ExitCode::bad_input, {"state.safetensors", "w.exp_avg"}, [&] { hash_with(shape); });
}

TEST(Hash, OfADirectoryDoesNotDependOnItsShards) {
  TemporaryDirectory directory;
  const auto write = [&](const std::string& folder, const std::vector<std::vector<std::string>>& shards) {
    std::filesystem::create_directory(directory / folder);
    std::string map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1 ? "model.safetensors" : "model-" + std::to_string(i) + ".safetensors";
      std::vector<TensorDeclaration> tensors;
      for (const std::string& tensor : shards[i]) tensors.push_back({tensor, DType::u8, {2}});
      SafetensorsWriter writer(directory / (folder + "/" + name), tensors);
      for (const std::string& tensor : shards[i]) {
        writer.write(tensor, 0, (tensor + tensor).data(), 2);
        map += (map.empty() ? "\"" : ",\"") + tensor + "\":\"" + name + "\"";
      }
      writer.finish();
    }
    if (shards.size() > 1)
      write_bytes(directory / (folder + "/model.safetensors.index.json"), "{\"weight_map\":{" + map + "}}");
  };
  write("one", {{"c", "a", "b"}});
  write("two", {{"c"}, {"b", "a"}});
  const StateHash one = hash_directory(directory / "one");
  const StateHash two = hash_directory(directory / "two");
  EXPECT_EQ(one.weights, xxh3_128("aabbcc", 6));
  EXPECT_EQ(one.weights, two.weights);
  EXPECT_EQ(one.tensors, two.tensors);
  EXPECT_EQ(one.state, "");
}

TEST(Hash, IgnoresAStepThatIsNoNumber) {
  TemporaryDirectory directory;
  for (const char* step : {"", "three", "3x", "99999999999999999999"}) {
    SafetensorsWriter(directory / "x.safetensors", {}, {{"step", step}}).finish();
    EXPECT_EQ(hash_file(directory / "x.safetensors").step, std::nullopt) << step;
  }
}

}  // namespace
}  // namespace megatrain
