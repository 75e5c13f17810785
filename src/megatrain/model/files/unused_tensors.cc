#include "megatrain/model/files/unused_tensors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/host/parallel.h"
#include "megatrain/hub/convert.h"
#include "megatrain/model/stored_tensors.h"

namespace megatrain {

namespace {

struct NameInLayer {
  int64_t layer;
  std::string_view rest;  // "mlp.up_proj.weight"
};

std::optional<NameInLayer> name_in_layer(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const size_t digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits == name.size() || name[digits] != '.' || layer < 0) return std::nullopt;
  return NameInLayer{layer, name.substr(digits + 1)};
}

// A buffer of RoPE in files of older versions of transformers. It is computed from config.json.
bool is_buffer(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

void refuse_experts(const ModelFiles& files, const std::vector<std::string>& unused,
                    const std::set<std::string>& used) {
  std::set<std::string> prefixes;
  for (const std::string& name : used) prefixes.insert(experts_prefix(name));
  for (const std::string& name : unused) {
    const std::string prefix = experts_prefix(name);
    if (!prefix.empty() && prefixes.contains(prefix))
      fail_input(fmt::format(
          "{}: tensor {} belongs to an expert beyond the number in config.json; check that config.json and weights "
          "belong together.",
          files.file_of(*files.find(name)), name));
  }
}

void refuse_layers(const ModelFiles& files, const std::vector<std::string>& unused, const std::set<std::string>& used) {
  int64_t layers = 0;
  std::set<std::string_view> names;  // names of tensors within a layer of the model
  for (const std::string& name : used) {
    if (const auto at = name_in_layer(name)) {
      layers = std::max(layers, at->layer + 1);
      names.insert(at->rest);
    }
  }
  std::set<int64_t> others;  // layers with names that the model's layers do not have
  for (const std::string& name : unused) {
    if (const auto at = name_in_layer(name); at && !names.contains(at->rest) && !is_buffer(at->rest))
      others.insert(at->layer);
  }
  for (const std::string& name : unused) {
    const auto at = name_in_layer(name);
    if (at && at->layer >= layers && names.contains(at->rest) && !others.contains(at->layer))
      fail_input(fmt::format(
          "{}: tensor {} belongs to a layer beyond the number in config.json (num_hidden_layers is {}); check that "
          "config.json and weights belong together.",
          files.file_of(*files.find(name)), name, layers));
  }
}

// A tied model uses the embedding as its head. Files may have the head as well, if it is equal.
void check_tied_head(const ModelFiles& files, const TensorSpec& embedding, int threads) {
  const StoredTensor& head = files.parameter(kHeadName, tensor_shape(embedding));
  const StoredTensor& table = files.parameter(embedding.name, tensor_shape(embedding));
  constexpr int64_t kElements = int64_t{1} << 18;
  parallel_for(threads, ceil_div(embedding.elements(), kElements), [&](int64_t block) {
    const int64_t begin = block * kElements, count = std::min(kElements, embedding.elements() - begin);
    std::vector<float> a(static_cast<size_t>(count)), b(a);
    read_as_f32(head, begin, count, a.data());
    read_as_f32(table, begin, count, b.data());
    const auto same = [](float x, float y) {
      return x == y || std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), same).first;
    release_pages(head, begin, count);
    release_pages(table, begin, count);
    if (differs == a.end()) return;
    const int64_t row = (begin + (differs - a.begin())) / embedding.cols;
    fail_input(
        fmt::format("{}: {} differs from {} (row {}), but config.json says tie_word_embeddings: true; depending on its "
                    "version, transformers drops it or does not tie: set tie_word_embeddings to false to train both, "
                    "or remove {} from the weights",
                    files.file_of(head), kHeadName, embedding.name, row, kHeadName));
  });
  release_pages(head);
  release_pages(table);
}

}  // namespace

void refuse_uncounted(const ModelFiles& files, const std::vector<std::string>& unused,
                      const std::set<std::string>& used) {
  refuse_experts(files, unused, used);
  refuse_layers(files, unused, used);
}

void check_unused(const ModelFiles& files, const std::vector<std::string>& unused, const TensorSpec& embedding,
                  int threads) {
  constexpr size_t kMostNamed = 3;
  std::vector<std::string> others;
  for (const std::string& name : unused) {
    if (name == kHeadName) {
      check_tied_head(files, embedding, threads);
    } else if (!is_buffer(name)) {
      others.push_back(name);
    }
  }
  if (others.empty()) return;
  const size_t named = std::min(kMostNamed, others.size());
  log_warn(fmt::format("{} holds {} tensors that are not this model's and are not used: {}{}", files.path(),
                       others.size(), fmt::join(others.begin(), others.begin() + static_cast<int64_t>(named), ", "),
                       named < others.size() ? ", …" : ""));
}

}  // namespace megatrain
