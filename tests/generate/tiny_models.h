// The tiny models of tests/parity with generators over them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/generate/generator.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "tests/support/places.h"

namespace megatrain::generation {

inline constexpr int64_t kPlenty = int64_t{1} << 32;

inline std::string model_path(const std::string& name) {
  return in_repository("tests/parity/goldens/") + name + "/model";
}

inline const nlohmann::json& goldens() {
  static const nlohmann::json json = read_json_file(in_repository("tests/generate/goldens.json"));
  return json;
}

// Under a sanitizer, only one model of each kind (the name without its last word): they differ in maths, not in
// threads.
inline std::vector<std::string> model_names() {
  std::vector<std::string> names;
  std::set<std::string> kinds;
  for (const auto& [name, answers] : goldens().items()) {
    const bool other = kinds.insert(name.substr(0, name.rfind('_'))).second;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    if (!other) continue;
#else
    static_cast<void>(other);
#endif
    names.push_back(name);
  }
  return names;
}

inline std::unique_ptr<Ops> make_ops_of(Device& device) {
  return device.kind() == DeviceKind::cuda ? make_cuda_ops(device) : make_cpu_ops({.threads = 1});
}

// A model in memory, weights only.
struct TinyModel {
  explicit TinyModel(const std::string& name, DType dtype = DType::f32, Tier tier = Tier::host,
                     std::unique_ptr<Device> on = make_cpu_device())
      : device(std::move(on)),
        ops(make_ops_of(*device)),
        config(parse_model_config(read_json_file(model_path(name) + "/config.json"), name)),
        records(make_records(*device, weights_only(model_layouts(config, dtype)),
                             std::vector<Tier>(model_layouts(config, dtype).size(), tier))) {
    load_weights(model_path(name), records, 1);
  }

  // The golden's family with other dimensions and random weights; `experts_per_record` as in ModelShape.
  TinyModel(const std::string& name, const nlohmann::json& changes, Tier tier = Tier::host,
            std::unique_ptr<Device> on = make_cpu_device(), int64_t experts_per_record = 0, DType dtype = DType::f32)
      : device(std::move(on)), ops(make_ops_of(*device)) {
    nlohmann::json json = read_json_file(model_path(name) + "/config.json");
    json.update(changes);
    config = parse_model_config(json, name);
    config.init_std = 0.3;
    const std::vector<LayerLayout> layouts = model_layouts(config, dtype, {}, experts_per_record);
    records = make_records(*device, weights_only(layouts), std::vector<Tier>(layouts.size(), tier));
    randomize();
  }

  void randomize() {
    for (LayerRecord& record : records) {
      for (const TensorSpec& tensor : record.layout().tensors) {
        std::vector<float> values(static_cast<size_t>(tensor.elements()));
        init_tensor(config, tensor, 1, 0, tensor.elements(), values.data());
        record.write_master(tensor, 0, tensor.elements(), values.data());
      }
    }
  }

  // Others have too few layers for that: two unlike ones fit where two of the larger do.
  bool streams() const { return config.experts.count == 0 && !(config.gated_conv.taps > 0 && config.layers == 2); }
  Generator generator(const GeneratorOptions& options) { return {*device, *ops, config, records, options}; }

  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  ModelConfig config;
  std::vector<LayerRecord> records;
};

// The golden's prompts, to be answered greedily.
inline std::vector<GenerationRequest> golden_requests(const std::string& name) {
  std::vector<GenerationRequest> requests;
  for (const nlohmann::json& answer : goldens().at(name)) {
    requests.push_back({.prompt = answer.at("prompt").get<std::vector<int32_t>>(),
                        .max_tokens = static_cast<int64_t>(answer.at("ids").size())});
  }
  return requests;
}

inline std::vector<std::vector<int32_t>> ids_of(const std::vector<Generation>& generations) {
  std::vector<std::vector<int32_t>> ids;
  for (const Generation& generation : generations) ids.push_back(generation.ids);
  return ids;
}

inline std::vector<std::vector<int32_t>> golden_ids(const std::string& name) {
  std::vector<std::vector<int32_t>> ids;
  for (const nlohmann::json& answer : goldens().at(name)) ids.push_back(answer.at("ids").get<std::vector<int32_t>>());
  return ids;
}

}  // namespace megatrain::generation
