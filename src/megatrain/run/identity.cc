#include "megatrain/run/identity.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/data/file_fingerprint.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/model/config_fields.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/run/run_files.h"

namespace megatrain {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Groups of the identity. Messages name a field GROUP.FIELD, except in `files`, whose fields are configuration keys.
constexpr const char* kModel = "model";        // fields of config.json that affect training
constexpr const char* kExported = "exported";  // fields of config.json that do not
constexpr const char* kFiles = "files";        // fingerprints of raw files, by key
constexpr const char* kOrder = "data.order";   // in kFiles; may grow when the run is extended
constexpr const char* kSettings = "settings";  // keys that may change at a resume
constexpr const char* kAdapter = "adapter";    // all of its settings, as a text; empty: none
constexpr const char* kBase = "base";          // with adapters, the fingerprint of the base's weights
constexpr const char* kData = "data";          // the fingerprint of datasets
constexpr const char* kSums = "sums";          // version of the order in which gradients are summed
constexpr int64_t kFirstSums = 1;              // assumed for checkpoints without the field

// The only values that fields of the model had before they existed.
const std::map<std::string, json>& former_values() {
  static const std::map<std::string, json> values = {{"branch_scale", 1.0},
                                                     {"logits_scale", 1.0},
                                                     {"final_logit_softcapping", 0.0},
                                                     {"no_rope_layers", json::array()},
                                                     {"attention_gate", false},
                                                     {"delta_net", json()},
                                                     {"rope_pairs", false},
                                                     {"pairs", false},
                                                     {"query_growth", 0.0},
                                                     {"v_norm", false},
                                                     {"num_kv_shared_layers", 0},
                                                     {"use_double_wide_mlp", false},
                                                     {"hidden_size_per_layer_input", 0},
                                                     {"full_attention_heads", json()},
                                                     {"mamba2", json()},
                                                     {"gated_conv", json()},
                                                     {"layers_without_mixer", json::array()},
                                                     {"attn_logit_softcapping", 0.0},
                                                     {"multipliers", json()},
                                                     {"latent_attention", json()},
                                                     {"rope_parameters.partial_rotary_factor", 1.0},
                                                     {"partial_rotary_factor", 1.0}};
  return values;
}

ordered_json settings_json(const TrainConfig& c, const ModelConfig& model) {
  // Binding every member makes this fail to compile when the optimizer gains a setting.
  const auto& [lr, beta1, beta2, eps, weight_decay, clip, schedule, warmup, warmup_most, min_lr, decay] = c.optim;
  ordered_json settings = {{"steps", c.steps},       {"optim.lr", lr},
                           {"optim.beta1", beta1},   {"optim.beta2", beta2},
                           {"optim.eps", eps},       {"optim.weight_decay", weight_decay},
                           {"optim.clip", clip},     {"optim.schedule", schedule},
                           {"optim.warmup", warmup}, {"optim.min_lr", min_lr},
                           {"optim.decay", decay},   {"conventions", c.conventions}};
  // Older checkpoints lack newer settings, so these are written only when set.
  if (warmup_most > 0) settings["optim.warmup_most"] = warmup_most;
  if (model.experts.count > 0) {
    const RouterLosses losses = router_losses(c, model);
    settings["moe.aux_loss"] = losses.aux;
    settings["moe.z_loss"] = losses.z;
  }
  return settings;
}

// The fingerprint of the weights that are frozen beside adapters. A checkpoint does not hold them, so they must be the
// same at a resume. Samples of each file are read, so that this takes no longer for a large model. Empty for random
// weights.
std::string base_fingerprint(const std::string& path, int threads) {
  constexpr int64_t kBlocks = 64;  // of a MiB, per file
  if (path.empty()) return "";
  std::string all;
  const ModelFiles files(find_model(path, ModelParts::weights));
  for (const SafetensorsFile& file : files.files())
    all += file_fingerprint(file.path(), threads, {.most = kBlocks}) + "\n";
  return xxh3_128(all.data(), all.size());
}

std::string adapter_text(const TrainConfig::Adapter& a) {
  if (a.rank == 0) return "";
  const auto& [rank, alpha, dropout, targets, target_parameters, exclude, rslora, dora, bias, init, rank_pattern,
               alpha_pattern, also_train, token_indices] = a;
  const auto sorted = [](std::vector<std::string> names) {  // their order means nothing
    std::sort(names.begin(), names.end());
    return names;
  };
  ordered_json settings = {{"rank", rank},
                           {"alpha", alpha},
                           {"dropout", dropout},
                           {"targets", sorted(targets)},
                           {"exclude", sorted(exclude)},
                           {"rslora", rslora},
                           {"init", init},
                           {"rank_pattern", rank_pattern},
                           {"alpha_pattern", alpha_pattern},
                           {"also_train", sorted(also_train)}};
  // Older checkpoints lack newer settings, so these are written only when set.
  if (dora) settings["dora"] = true;
  if (bias != "none") settings["bias"] = bias;
  if (!target_parameters.empty()) settings["target_parameters"] = sorted(target_parameters);
  if (!token_indices.empty()) settings["trainable_token_indices"] = token_indices;
  return settings.dump();
}

// Identity of the first `numbers` entries of data.order, or of all if it has fewer.
ordered_json order_json(const std::string& path, int64_t numbers = std::numeric_limits<int64_t>::max() / 8) {
  if (path.empty()) return "";
  constexpr int64_t kNumberBytes = 8;
  numbers = std::clamp<int64_t>(numbers, 0, File::open_to_read(path).bytes() / kNumberBytes);
  return {{"numbers", numbers}, {"hash", file_fingerprint(path, 1, {.bytes = numbers * kNumberBytes})}};
}

ordered_json files_json(const TrainConfig& c) {
  ordered_json files = {{"data.dtype", c.data.dtype}};
  const auto add = [&](const char* key, const std::string& path) {
    files[key] = path.empty() ? "" : file_fingerprint(path, static_cast<int>(c.threads));
  };
  add("data.tokens", c.data.tokens);
  add("data.documents", c.data.documents);
  add("data.labels", c.data.labels);
  files[kOrder] = order_json(c.data.order);
  return files;
}

// The name of a whole group, for checkpoints that lack it.
std::string name_of_all(const std::string& group) {
  if (group == kModel) return "the model's fields";
  if (group == kExported) return "what its export says of it";
  if (group == kFiles) return "the files of data.tokens";
  return "the optimizer's settings and the steps of the run";
}

std::string name_of(const std::string& group, const std::string& field) {
  return group == kModel || group == kExported ? "the model's " + field : field;
}

// Explains where the difference comes from and what the user can do about it.
std::string advice(const std::string& group, const std::string& field) {
  if (group == kModel)
    return "restore the config.json that the run began with (RUN/model_config.json is a copy), or start a new run_dir";
  if (group == kFiles) return "give the file that the run began with, or start a new run_dir";
  if (field == kData)
    return "the samples differ, or their tokenizer, chat template, or one of the data keys that choose and order them; "
           "restore these, or start a new run_dir";
  return "give the same value, or start a new run_dir";
}

[[noreturn]] void refuse(const std::string& checkpoint, const std::string& group, const std::string& field,
                         const std::string& before, const std::string& now) {
  fail_config(fmt::format("{} was made with {} = {}, this run has {}: resuming would not be exact; {}", checkpoint,
                          name_of(group, field), before, now, advice(group, field)));
}

class Comparison {
 public:
  Comparison(const std::string& checkpoint, const json& saved, const ordered_json& now, const std::string& order,
             const std::vector<KeyChange>& data, const std::string& base)
      : checkpoint_(checkpoint), saved_(saved), now_(now), order_(order), data_(data), base_(base) {}

  void compare_keys() const {
    for (const auto& [key, value] : now_.items()) {
      if (value.is_object() || key == kSums) continue;  // groups are compared by compare(), this key by compare_sums()
      const bool known = saved_.contains(key);
      if (!known && (key == kAdapter || key == kBase) && value == "") continue;
      if (!known && key.starts_with("state.")) {  // written before the key existed
        if (value == "fp32") continue;
        refuse(checkpoint_, "", key, "\"fp32\"", value.dump());
      }
      if (key == kBase && known && saved_.at(key) != json(value)) refuse_base();
      if (key == kData && known && saved_.at(key) != json(value)) refuse_data(saved_.at(key).dump(), value.dump());
      if (!known || saved_.at(key) != json(value))
        refuse(checkpoint_, "", key, known ? saved_.at(key).dump() : "nothing", value.dump());
    }
  }

  // The order of sums follows from the keys and groups. Those are compared first, because their messages name what the
  // user changed.
  void compare_sums() const {
    const ordered_json& now = now_.at(kSums);
    if (saved_.contains(kSums)) {
      if (saved_.at(kSums) != json(now)) refuse(checkpoint_, "", kSums, saved_.at(kSums).dump(), now.dump());
    } else if (now.get<int64_t>() != kFirstSums) {  // written before the field existed
      log_warn(
          fmt::format("{} was written by an earlier version, which added some gradients in another order: the "
                      "continuation may differ from that run's in its last bits",
                      checkpoint_));
    }
  }

  void compare(const char* group, bool refused) {
    if (!now_.contains(group)) return;
    if (!saved_.contains(group)) {
      unknown_.push_back(name_of_all(group));
      return;
    }
    const ordered_json& now = now_.at(group);
    const json& before = saved_.at(group);
    if (!before.is_object())
      fail(ExitCode::corrupt_checkpoint,
           fmt::format(
               "{}: '{}' of its identity is not a JSON object; the file is damaged: resume from an older checkpoint",
               checkpoint_, group));
    compare_fields(group, "", before, now, refused);
  }

  void report_unknown() const {
    if (unknown_.empty()) return;
    log_warn(
        fmt::format("{} was written by another version of megatrain: whether {} {} as before could not be compared",
                    checkpoint_, fmt::join(unknown_, ", "), unknown_.size() == 1 ? "is" : "are"));
  }

 private:
  [[noreturn]] void refuse_base() const {
    fail_config(
        fmt::format("{}: the base of the adapters is not the one that they were trained on: {}. A checkpoint holds "
                    "only what is trained, so resuming would not be exact; restore the base, or start a new run_dir",
                    checkpoint_,
                    base_.empty() ? "it has random weights now"
                                  : fmt::format("the weights in {} have changed, or it is another model", base_)));
  }

  [[noreturn]] void refuse_data(const std::string& before, const std::string& now) const {
    if (data_.empty()) refuse(checkpoint_, "", kData, before, now);
    std::string others;
    for (size_t i = 1; i < data_.size(); ++i)
      others += fmt::format(" (and {} = {}, was {})", data_[i].key, data_[i].now, data_[i].before);
    refuse(checkpoint_, "", data_[0].key, data_[0].before, data_[0].now + others);
  }

  // `of` is the prefix of the field names: empty, or the parent field and a dot.
  void compare_fields(const std::string& group, const std::string& of, const json& before, const ordered_json& now,
                      bool refused) {
    for (const auto& [field, value] : now.items()) {
      const auto former = former_values().find(field);
      if (before.contains(field)) {
        compare_field(group, of + field, before.at(field), value, refused);
      } else if (group == kModel && former != former_values().end()) {
        compare_field(group, of + field, former->second, value, refused);
      } else {
        unknown_.push_back(name_of(group, of + field));
      }
    }
    for (const auto& [field, value] : before.items()) {
      if (!now.contains(field)) unknown_.push_back(name_of(group, of + field));
    }
  }

  void compare_field(const std::string& group, const std::string& field, const json& before, const ordered_json& now,
                     bool refused) {
    if (before == json(now)) return;
    if (now.is_object() && (group == kModel || group == kExported)) {
      if (before.is_object()) return compare_fields(group, field + ".", before, now, refused);
      if (before.is_array() && before.size() <= now.size()) {  // written before the members had names
        size_t i = 0;
        for (const auto& [member, value] : now.items()) {
          if (i == before.size()) break;  // newer members
          compare_field(group, field + "." + member, before.at(i++), value, refused);
        }
        return;
      }
    }
    const std::string was = before.dump(), is = now.dump();
    if (refused && !(field == kOrder && begins_as(before))) refuse(checkpoint_, group, field, was, is);
    log_info(fmt::format("{} was {} in the checkpoint's run, is {} now", name_of(group, field), was, is));
  }

  // A longer run needs a longer order, so the checkpoint's part of it must be a prefix of the present one.
  bool begins_as(const json& before) const {
    return !order_.empty() && before.is_object() && before.value("numbers", json()).is_number_integer() &&
           json(order_json(order_, before.at("numbers").get<int64_t>())) == before;
  }

  const std::string& checkpoint_;
  const json& saved_;
  const ordered_json& now_;
  const std::string& order_;
  const std::vector<KeyChange>& data_;
  const std::string& base_;
  std::vector<std::string> unknown_;
};

// The order in which gradients are summed, as a version:
//   2  blocks run over ranges of mlp_chunk tokens, and attention's backward over tiles
//   3  bf16 attention on a GPU also cuts windows into tiles
//   4  it also runs on documents in place, and over tiles in the forward of long ones
//   5  the norm sums the gradient of each expert separately
//
// A run that uses none of these keeps version 1. The device does not count, because a run may resume on another one.
int64_t sums_of(const TrainConfig& c, const ModelConfig& model, const RunIdentity& identity) {
  const bool ranges = identity.mlp_chunk < c.seq_len * c.micro_batch;
  const int64_t tile = attention_tile({.heads = model.heads, .kv_heads = model.kv_heads});
  const bool tiles = c.seq_len > tile;
  const bool documents = !c.data.documents.empty() || !c.data.train.empty();
  const bool windows = tiles && std::any_of(model.window.begin(), model.window.end(), [](int64_t w) { return w > 0; });
  if (model.experts.count > 0) return kFirstSums + 4;
  if (identity.dtype == DType::bf16) {
    if (documents || c.seq_len > kForwardTiles * tile) return kFirstSums + 3;
    if (windows) return kFirstSums + 2;
  }
  return ranges || tiles ? kFirstSums + 1 : kFirstSums;
}

}  // namespace

ordered_json identity_json(const TrainConfig& c, const ModelConfig& model, const RunIdentity& identity,
                           const BatchSource* data, const BatchSource* eval) {
  // In this order: the chunks may be derived from the keys before them.
  ordered_json all = {{"precision", c.precision},
                      {"seq_len", c.seq_len},
                      {"batch", c.batch},
                      {"micro_batch", c.micro_batch},
                      {"seed", c.seed},
                      {"head_chunk", identity.head_chunk},
                      {"mlp_chunk", identity.mlp_chunk},
                      {"freeze", c.freeze},
                      {"train_only", c.train_only},
                      {kAdapter, adapter_text(c.adapter)},
                      {kBase, c.adapter.rank > 0 ? base_fingerprint(c.model.path, static_cast<int>(c.threads)) : ""},
                      {"state.moments", c.state.moments},
                      {"state.master", c.state.master},
                      {kData, data ? data->fingerprint() : ""}};
  for (ModelField& field : model_fields(model)) {
    all[field.decides_steps ? kModel : kExported][field.name] = std::move(field.value);
  }
  if (data && !c.data.tokens.empty()) all[kFiles] = files_json(c);
  all[kSums] = sums_of(c, model, identity);  // derived from the fields before it
  all[kSettings] = settings_json(c, model);
  all[kSettings]["data.eval"] = eval ? eval->fingerprint() : "";
  return all;
}

void add_algorithms(const RunIdentity& identity, ordered_json& json) {
  json["library"] = identity.library;
  json["algorithms"] = identity.algorithms;
}

void check_identity(const json& saved, const ordered_json& now, const std::string& checkpoint, const std::string& order,
                    const std::vector<KeyChange>& data, const std::string& base) {
  Comparison comparison(checkpoint, saved, now, order, data, base);
  comparison.compare(kModel, true);  // before the chunks, which may be derived from it
  comparison.compare_keys();
  comparison.compare(kFiles, true);
  comparison.compare_sums();
  comparison.compare(kExported, false);
  comparison.compare(kSettings, false);
  comparison.report_unknown();
}

std::vector<KeyChange> changed_data_keys(const std::string& run_dir, const TrainConfig& now) {
  const std::set<std::string> elsewhere = {"data.cache", "data.eval"};  // these do not affect the training samples
  std::vector<KeyChange> changes;
  try {
    const TrainConfig before = read_run(run_dir).config;
    for (const ConfigKey& key : config_keys()) {
      // `conventions` decides how epochs are counted
      const bool chooses = key.name.starts_with("data.") || key.name == "conventions";
      if (!chooses || elsewhere.contains(key.name)) continue;
      const std::string was = key.write(before), is = key.write(now);
      if (was != is) changes.push_back({key.name, was, is});
    }
  } catch (const Error&) {
    return {};  // the former configuration is gone or damaged; the message then shows fingerprints
  }
  return changes;
}

}  // namespace megatrain
