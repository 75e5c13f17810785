// How files store experts: whole or as parts of one tensor, plain or in MXFP4, and what is refused.
#include "megatrain/model/stored_tensors.h"
#include "megatrain/model/parse_config.h"

#include <cstring>
#include <filesystem>
#include <map>

#include "megatrain/base/math.h"
#include "megatrain/device/device.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/store/pieces.h"
#include "megatrain/tensor/mxfp4.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"
#include "tests/support/said.h"

namespace megatrain {

namespace {

struct Held {
  DType type;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A golden model whose tensors a test changes.
class Directory {
 public:
  explicit Directory(const std::string& golden) {
    const std::string model = in_repository("tests/parity/goldens/") + golden + "/model";
    config = parse_model_config(read_json_file(model + "/config.json"), "config.json");
    const ModelFiles files(model);
    for (const StoredTensor* tensor : files.tensors()) {
      const auto type = parameter_type(tensor->dtype);
      tensors[tensor->name] = {
          type ? *type : DType::u8, tensor->shape,
          std::string(reinterpret_cast<const char*>(tensor->data), static_cast<size_t>(tensor->bytes))};
    }
  }

  std::vector<LayerRecord> load(int64_t experts_per_record = 0) {
    std::vector<TensorDeclaration> declared;
    for (const auto& [name, held] : tensors) declared.push_back({name, held.type, held.shape});
    SafetensorsWriter writer(out / "model.safetensors", declared);
    for (const auto& [name, held] : tensors) writer.write(name, 0, held.bytes.data(), std::ssize(held.bytes));
    writer.finish();
    const std::vector<LayerLayout> layouts = model_layouts(config, DType::bf16, {}, experts_per_record);
    std::vector<LayerRecord> records = make_records(*device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
    report = load_weights(out.path(), records, 2);
    return records;
  }

  void refused(std::initializer_list<std::string> parts) {
    expect_error(ExitCode::bad_input, parts, [&] { load(); });
  }

  // Removes the last slices of the leading dimension.
  void cut(const std::string& name, int64_t slices) {
    Held& held = tensors.at(name);
    held.bytes.resize(held.bytes.size() / static_cast<size_t>(held.shape[0]) * static_cast<size_t>(slices));
    held.shape[0] = slices;
  }

  ModelConfig config;
  std::map<std::string, Held> tensors;
  TemporaryDirectory out;
  std::unique_ptr<Device> device = make_cpu_device();
  LoadReport report;
};

std::vector<float> master(const std::vector<LayerRecord>& records, const std::string& name) {
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.name != name) continue;
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), values.data());
      return values;
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

std::vector<float> floats(const Held& held) {
  std::vector<float> values(held.bytes.size() / static_cast<size_t>(dtype_bytes(held.type)));
  widen_to_f32(reinterpret_cast<const std::byte*>(held.bytes.data()), held.type, std::ssize(values), values.data());
  return values;
}

constexpr const char* kLayer = "model.layers.1.mlp.experts";

}  // namespace

TEST(StoredTensors, FusedExpertsComeApartTransposedAndGateAndUpInTurn) {
  Directory model("gpt_oss");
  const int64_t experts = model.config.experts.count, ff = model.config.experts.ff, hidden = model.config.hidden;
  const std::string prefix = kLayer;
  for (const int64_t group : {0, 1, 3}) {
    const std::vector<LayerRecord> records = model.load(group);
    EXPECT_TRUE(model.report.unused.empty());
    const std::vector<float> gate_up = floats(model.tensors.at(prefix + ".gate_up_proj")),
                             down = floats(model.tensors.at(prefix + ".down_proj")),
                             bias = floats(model.tensors.at(prefix + ".gate_up_proj_bias")),
                             down_bias = floats(model.tensors.at(prefix + ".down_proj_bias"));
    for (int64_t e = 0; e < experts; ++e) {
      const auto own = [&](const char* part) { return master(records, prefix + "." + std::to_string(e) + part); };
      const std::vector<float> gate = own(".gate_proj.weight"), up = own(".up_proj.weight");
      for (int64_t r = 0; r < ff; ++r) {
        for (int64_t c = 0; c < hidden; ++c) {
          const auto at = static_cast<size_t>((e * hidden + c) * 2 * ff + 2 * r),
                     to = static_cast<size_t>(r * hidden + c);
          ASSERT_EQ(gate[to], gate_up[at]);
          ASSERT_EQ(up[to], gate_up[at + 1]);
          ASSERT_EQ(own(".down_proj.weight")[static_cast<size_t>(c * ff + r)],
                    down[static_cast<size_t>((e * ff + r) * hidden + c)]);
        }
        ASSERT_EQ(own(".gate_proj.bias")[static_cast<size_t>(r)], bias[static_cast<size_t>(e * 2 * ff + 2 * r)]);
        ASSERT_EQ(own(".up_proj.bias")[static_cast<size_t>(r)], bias[static_cast<size_t>(e * 2 * ff + 2 * r + 1)]);
      }
      ASSERT_EQ(own(".down_proj.bias")[5], down_bias[static_cast<size_t>(e * hidden + 5)]);
    }
    EXPECT_EQ(model.report.types.at(prefix + ".0.up_proj.weight"), DType::bf16);
  }
}

TEST(StoredTensors, Mxfp4ThatConfigJsonDoesNotNameIsSaidInALine) {
  Directory model("gpt_oss_mxfp4");
  write_bytes(model.out / "config.json", "{}");
  EXPECT_NE(logged_by([&] { model.load(); }).find("MXFP4"), std::string::npos);
  write_bytes(model.out / "config.json", R"({"quantization_config": {"quant_method": "mxfp4"}})");
  EXPECT_EQ(logged_by([&] { model.load(); }).find("MXFP4"), std::string::npos);
}

TEST(StoredTensors, Mxfp4ComesApartByRows) {
  Directory model("gpt_oss_mxfp4");
  const std::string prefix = kLayer;
  const int64_t experts = model.config.experts.count, ff = model.config.experts.ff, hidden = model.config.hidden;
  const std::vector<LayerRecord> records = model.load();
  EXPECT_TRUE(model.report.unused.empty());
  EXPECT_EQ(model.report.types.at(prefix + ".0.up_proj.weight"), DType::bf16);
  const auto decoded = [&](const std::string& name, int64_t numbers) {
    std::vector<float> values(static_cast<size_t>(numbers));
    decode_mxfp4(reinterpret_cast<const std::byte*>(model.tensors.at(name + "_blocks").bytes.data()),
                 reinterpret_cast<const std::byte*>(model.tensors.at(name + "_scales").bytes.data()), 0, numbers,
                 values.data());
    return values;
  };
  const std::vector<float> gate_up = decoded(prefix + ".gate_up_proj", experts * 2 * ff * hidden),
                           down = decoded(prefix + ".down_proj", experts * hidden * ff);
  for (int64_t e = 0; e < experts; ++e) {
    const auto own = [&](const char* part) { return master(records, prefix + "." + std::to_string(e) + part); };
    const std::vector<float> gate = own(".gate_proj.weight"), up = own(".up_proj.weight");
    for (int64_t i = 0; i < ff * hidden; ++i) {
      const int64_t row = i / hidden, col = i % hidden;
      const auto at = static_cast<size_t>((e * 2 * ff + 2 * row) * hidden + col);
      ASSERT_EQ(gate[static_cast<size_t>(i)], gate_up[at]);
      ASSERT_EQ(up[static_cast<size_t>(i)], gate_up[at + static_cast<size_t>(hidden)]);
    }
    const auto begin = down.begin() + e * hidden * ff;
    EXPECT_EQ(own(".down_proj.weight"), std::vector<float>(begin, begin + hidden * ff));
  }
}

class Pieces : public ::testing::TestWithParam<std::tuple<bool, DType>> {};

TEST_P(Pieces, OfAnySizeReadAndWriteTheSame) {
  // A part is larger than a piece, and a piece is not a whole number of rows.
  constexpr int64_t kSlices = 2, kHidden = 1000, kFf = 1100;
  static_assert(kFf * kHidden > kPiece && kPiece % kHidden != 0);
  const auto [transposed, type] = GetParam();
  std::vector<TensorSpec> specs;
  for (int64_t i = 0; i < kSlices; ++i) {
    for (int64_t part = 0; part < 2; ++part) {
      TensorSpec spec{.name = std::to_string(i) + "." + std::to_string(part), .rows = kFf, .cols = kHidden};
      spec.stored = {.name = "all",
                     .slices = kSlices,
                     .index = i,
                     .rows = 2 * kFf,
                     .first_row = part,
                     .row_step = 2,
                     .transposed = transposed};
      specs.push_back(spec);
    }
  }
  const std::vector<int64_t> shape = {kSlices, transposed ? kHidden : 2 * kFf, transposed ? 2 * kFf : kHidden};
  std::vector<float> values(static_cast<size_t>(kSlices * kHidden * 2 * kFf));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65521);
  const TemporaryDirectory directory;
  SafetensorsWriter writer(directory / "model.safetensors", {{"all", type, shape}});
  writer.write_f32("all", 0, values.data(), std::ssize(values));
  writer.finish();
  const ModelFiles files(directory.path());
  const StoredTensor& stored = *files.find("all");
  read_as_f32(stored, 0, stored.elements(), values.data());

  for (const TensorSpec& spec : specs) {
    const TensorSource source = find_source(files, spec);
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{0, kPiece}, {kPiece, spec.elements() - kPiece}, {12345, 3}, {999, 2002}}) {
      std::vector<float> found(static_cast<size_t>(count));
      read_source(source, spec, DType::f32, begin, count, found.data());
      for (int64_t i = begin; i < begin + count; ++i) {
        const int64_t row = 2 * (i / kHidden) + spec.stored.first_row, col = i % kHidden;
        const int64_t at = transposed ? col * 2 * kFf + row : row * kHidden + col;
        ASSERT_EQ(found[static_cast<size_t>(i - begin)],
                  values[static_cast<size_t>(spec.stored.index * kHidden * 2 * kFf + at)]);
      }
    }
  }
  std::vector<const TensorSpec*> pointers;
  for (auto spec = specs.rbegin(); spec != specs.rend(); ++spec) pointers.push_back(&*spec);
  const std::vector<FileTensor> tensors = file_tensors(pointers);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].shape, shape);
  const PartReader read = [&](const TensorSpec& part, int64_t begin, int64_t count, float* out) {
    read_source(find_source(files, part), part, DType::f32, begin, count, out);
  };
  for (const FilePiece& piece : cut_file_tensor(tensors[0])) {
    const std::vector<std::byte> bytes = piece_bytes(piece, type, read);
    EXPECT_EQ(std::memcmp(bytes.data(), stored.data + piece.begin * dtype_bytes(type), bytes.size()), 0);
  }
  EXPECT_EQ(piece_team(tensors, 2), 2 * kPieceScratchBytes / (4 * 2 * kFf * kHidden + 8 * kPiece));
}

INSTANTIATE_TEST_SUITE_P(StoredTensors, Pieces,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(DType::f32, DType::bf16)));

TEST(StoredTensors, RefusesExpertsThatAreMissingOrTooMany) {
  {
    Directory model("qwen3_moe");
    model.tensors.erase("model.layers.1.mlp.experts.6.up_proj.weight");
    model.refused({"model.layers.1.mlp.experts.6.up_proj.weight", "7 other experts", "config.json"});
  }
  {
    Directory model("qwen3_moe");
    model.config.experts.count = 7;
    Held& router = model.tensors.at("model.layers.0.mlp.gate.weight");
    model.refused({"mlp.gate.weight", "(8, 32)", "(7, 32)"});
    for (const char* layer : {"0", "1"}) model.cut("model.layers." + std::string(layer) + ".mlp.gate.weight", 7);
    ASSERT_EQ(router.shape[0], 7);
    model.refused({"experts.7.", "beyond the number"});
  }
  {
    Directory model("mixtral");
    model.tensors["model.layers.0.block_sparse_moe.experts.4.w1.weight"] =
        model.tensors.at("model.layers.0.block_sparse_moe.experts.0.w1.weight");
    model.refused({"experts.4.w1.weight", "beyond the number"});
  }
  {
    Directory model("gpt_oss");
    model.cut(std::string(kLayer) + ".gate_up_proj", 7);
    model.refused({"experts.gate_up_proj", "(7, 32, 20)", "(8, 32, 20)"});
  }
  {
    Directory model("qwen3_moe");
    model.tensors["model.layers.0.mlp.experts.gate_up_proj"] = {
        DType::bf16, {8, 24, 32}, std::string(2 * 8 * 24 * 32, 0)};
    for (int e = 0; e < 8; ++e) {
      for (const char* part : {"gate", "up"})
        model.tensors.erase("model.layers.0.mlp.experts." + std::to_string(e) + "." + part + "_proj.weight");
    }
    model.refused({"experts.gate_up_proj", "save_pretrained"});
  }
}

TEST(StoredTensors, RefusesExpertsInTwoForms) {
  Directory model("qwen3_5_moe");
  model.tensors["model.layers.0.mlp.experts.0.up_proj.weight"] = {DType::bf16, {6, 16}, std::string(2 * 6 * 16, 0)};
  model.refused({"experts.0.up_proj.weight", "stored twice", "experts.gate_up_proj"});
}

TEST(StoredTensors, RefusesMxfp4ThatIsNotWhole) {
  const std::string name = std::string(kLayer) + ".gate_up_proj";
  {
    Directory model("gpt_oss_mxfp4");
    model.tensors.erase(name + "_scales");
    model.refused({"no tensor " + name + "_scales", "MXFP4"});
  }
  {
    Directory model("gpt_oss_mxfp4");
    model.tensors.erase(name + "_blocks");
    model.refused({"no tensor " + name + "_blocks", "MXFP4"});
  }
  {
    Directory model("gpt_oss_mxfp4");
    Held& scales = model.tensors.at(name + "_scales");
    std::swap(scales.shape[0], scales.shape[1]);
    model.refused({name + "_scales", "(64, 4, 1)", "(4, 64, 1)"});
  }
  {
    Directory model("gpt_oss_mxfp4");
    model.cut(name + "_blocks", 3);
    model.refused({name + "_blocks", "(3, 64, 1, 16)", "(4, 64, 1, 16)"});
  }
  {
    Directory model("gpt_oss_mxfp4");
    model.tensors[name] = {DType::bf16, {4, 32, 64}, std::string(2 * 4 * 32 * 64, 0)};
    model.refused({name, name + "_blocks", "remove"});
  }
  {
    Directory model("gpt_oss_mxfp4");
    model.tensors.at(name + "_blocks").bytes[7] = 0x77;  // 6 twice
    model.tensors.at(name + "_scales").bytes[0] = static_cast<char>(254);
    model.refused({"model.layers.1.mlp.experts.0.gate_proj.weight", "inf"});
  }
}

TEST(StoredTensors, AnExportsConfigHasNoQuantization) {
  EXPECT_EQ(unquantised_config("{\"a\": 1}", DType::bf16), "{\"a\": 1}");
  const nlohmann::json changed = nlohmann::json::parse(
      unquantised_config("{\"a\": 1, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}", DType::bf16));
  EXPECT_EQ(changed, nlohmann::json({{"a", 1}}));
}

}  // namespace megatrain
