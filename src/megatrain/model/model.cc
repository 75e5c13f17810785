#include "megatrain/model/model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "megatrain/base/bf16.h"
#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/model/family.h"
#include "megatrain/model/layers/rope_table.h"
#include "megatrain/model/trained/adapter_checks.h"
#include "megatrain/tensor/fp8.h"
#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

namespace {

LayerLayout layout_of(std::vector<TensorSpec> tensors, DType dtype) {
  for (TensorSpec& tensor : tensors) {
    if (tensor.dtype != DType::f32) tensor.dtype = dtype;  // a family's fp32 tensors stay fp32 in every precision
  }
  return make_layout(std::move(tensors));
}

// The tensors of each record of a layer: the block's first one, those of buffers, the experts', their adapters', the
// block's adapters, and those of further phases, each with its adapters.
std::vector<std::vector<TensorSpec>> record_tensors(const ModelConfig& config, int64_t layer,
                                                    const AdapterRules& adapter, int64_t experts_per_record) {
  const Family& family = family_of(config);
  std::vector<std::vector<TensorSpec>> lists = family.tensors(config, layer);
  std::vector<TensorSpec> adapters = adapter_tensors(adapter, lists.front());
  const auto with_adapters = [&](std::vector<std::vector<TensorSpec>> records) {
    if (!adapters.empty()) records.push_back(std::move(adapters));
    if (!family.more_tensors) return records;
    for (std::vector<TensorSpec>& list : family.more_tensors(config, layer)) {
      std::vector<TensorSpec> own = adapter_tensors(adapter, list);
      records.push_back(std::move(list));
      if (!own.empty()) records.push_back(std::move(own));
    }
    return records;
  };
  if (!config.experts.in_layer(layer)) return with_adapters(std::move(lists));
  const int64_t group =
      experts_per_record > 0 && !config.experts.beside_mlp ? experts_per_record : config.experts.count;
  const auto first_expert = lists.size() - static_cast<size_t>(config.experts.count);
  std::vector<std::vector<TensorSpec>> of_experts =
      expert_adapter_tensors(adapter, std::span(lists).subspan(first_expert));
  std::vector<std::vector<TensorSpec>> records(
      std::make_move_iterator(lists.begin()),
      std::make_move_iterator(lists.begin() + std::ssize(lists) - config.experts.count)),
      expert_adapters;
  for (int64_t expert = 0; expert < config.experts.count; ++expert) {
    const auto add = [&](std::vector<std::vector<TensorSpec>>& to, std::vector<TensorSpec>& tensors) {
      if (expert % group == 0) to.emplace_back();
      for (TensorSpec& tensor : tensors) to.back().emplace_back(std::move(tensor)).part = expert % group;
    };
    add(records, lists[first_expert + static_cast<size_t>(expert)]);
    if (!of_experts.empty()) add(expert_adapters, of_experts[static_cast<size_t>(expert)]);
  }
  records.insert(records.end(), std::make_move_iterator(expert_adapters.begin()),
                 std::make_move_iterator(expert_adapters.end()));
  return with_adapters(std::move(records));
}

// model_layouts(), and how many of them each layer has.
std::vector<LayerLayout> list_layouts(const ModelConfig& config, DType dtype, const TrainRules& rules,
                                      int64_t experts_per_record, std::vector<int64_t>& of_layers) {
  if (config.part_of.empty()) refuse_names_in_whole(rules.adapter);
  std::vector<LayerLayout> layouts = {layout_of(embedding_tensors(config), dtype)};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto records = record_tensors(config, layer, rules.adapter, experts_per_record);
    for (std::vector<TensorSpec>& record : records) layouts.push_back(layout_of(std::move(record), dtype));
    of_layers.push_back(std::ssize(records));
  }
  if (std::vector<TensorSpec> rows = token_row_tensors(rules.adapter, config); !rows.empty())
    layouts.push_back(layout_of(std::move(rows), dtype));
  layouts.push_back(layout_of(head_tensors(config), dtype));
  return freeze_tensors(std::move(layouts), rules, config.tied);
}

}  // namespace

std::vector<LayerLayout> model_layouts(const ModelConfig& config, DType dtype, const TrainRules& rules,
                                       int64_t experts_per_record) {
  std::vector<int64_t> of_layers;
  return list_layouts(config, dtype, rules, experts_per_record, of_layers);
}

int64_t idle_parameters(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  if (experts.count == 0) return 0;
  const auto idle_in = [&](int64_t layer) {
    std::vector<std::vector<TensorSpec>> records = record_tensors(config, layer, {}, 0);
    size_t next = 1;  // behind the block's: buffers, then the experts'
    while (layout_of(records[next], DType::bf16).is_buffers()) ++next;
    return layout_of(std::move(records[next]), DType::bf16).parameters() / experts.count *
           (experts.count - experts.chosen);
  };
  std::map<std::string, int64_t> of_kind;
  int64_t idle = config.tied ? 0 : layout_of(embedding_tensors(config), DType::bf16).parameters();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!experts.in_layer(layer)) continue;
    const auto [kind, is_new] = of_kind.try_emplace(family_of(config).kind(config, layer));
    if (is_new) kind->second = idle_in(layer);
    idle += kind->second;
  }
  return idle;
}

ModelConfig one_layer_of_each_kind(const ModelConfig& config) {
  std::set<std::string> kinds;
  std::vector<int64_t> first;  // first layer of each kind
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (kinds.insert(family_of(config).kind(config, layer)).second) first.push_back(layer);
  }
  return config.with_layers(first);
}

int64_t largest_layer_record(const ModelConfig& config) {
  const std::vector<LayerLayout> layouts = model_layouts(one_layer_of_each_kind(config));
  int64_t largest = 0;
  for (size_t r = 1; r + 1 < layouts.size(); ++r) {
    const bool is_table = layouts[r].tensors.front().role == TensorRole::embedding;  // its rows are looked up
    if (!is_table) largest = std::max(largest, layouts[r].elements);
  }
  return largest;
}

namespace {

// Beside adapters, records that are entirely frozen hold their weights only as they compute: no checkpoint and no
// export has them.
std::vector<LayerLayout> without_frozen_masters(std::vector<LayerLayout> layouts) {
  for (LayerLayout& layout : layouts) {
    if (layout.state_elements > 0) continue;
    for (TensorSpec& tensor : layout.tensors) tensor.master = tensor.dtype;
    layout = make_layout(std::move(layout.tensors), layout.moments);
  }
  return layouts;
}

}  // namespace

Model make_model(const ModelConfig& config, const ModelShape& shape, const TrainRules& rules,
                 const TensorTypes& stored) {
  const Family& family = family_of(config);
  std::vector<int64_t> of_layers;
  std::vector<LayerLayout> layouts = with_format(
      as_in_source(list_layouts(config, shape.dtype, rules, shape.experts_per_record, of_layers), stored), shape.state);
  if (rules.adapter.any()) layouts = without_frozen_masters(std::move(layouts));
  const LayerLayout& before_head = layouts[layouts.size() - 2];
  const LayerLayout* token_rows = before_head.is_token_rows() ? &before_head : nullptr;
  Model model{.config = config,
              .shape = shape,
              .embedding = Embedding(config, shape, layouts.front(), token_rows),
              .layers = {},
              .token_rows = token_rows ? std::optional(*token_rows) : std::nullopt,
              .head = Head(config, shape, layouts.back(), token_rows)};
  auto next = std::make_move_iterator(layouts.begin() + 1);
  for (int64_t index = 0; index < config.layers; ++index) {
    const int64_t count = of_layers[static_cast<size_t>(index)];
    Layer& layer = model.layers.emplace_back();
    layer.kind = family.kind(config, index);
    layer.records.assign(next, next + count);
    layer.phases = family.phases(config, shape, index, layer.records);
    next += count;
  }
  return model;
}

std::vector<LayerLayout> Model::layouts() const {
  std::vector<LayerLayout> all = {embedding.record()};
  for (const Layer& layer : layers) all.insert(all.end(), layer.records.begin(), layer.records.end());
  if (token_rows) all.push_back(*token_rows);
  all.push_back(head.record());
  return all;
}

int64_t Model::records() const {
  int64_t count = token_rows ? 3 : 2;
  for (const Layer& layer : layers) count += std::ssize(layer.records);
  return count;
}

namespace {

// `numbers` maps the phase's record indices to the model's record numbers.
Model::NumberedPhase numbered(const Phase& phase, const std::vector<int64_t>& numbers) {
  Model::NumberedPhase made{.phase = &phase, .records = phase.records(), .parts = phase.parts(), .whole = {}};
  const auto number = [&](int64_t position) { return numbers[static_cast<size_t>(position)]; };
  for (int64_t& record : made.records) record = number(record);
  for (std::vector<int64_t>& part : made.parts) {
    for (int64_t& record : part) record = number(record);
  }
  if (const auto table = phase.looks_up()) made.looks_up = number(*table);
  made.whole = made.records;
  std::erase(made.whole, made.looks_up);
  return made;
}

}  // namespace

std::vector<Model::NumberedPhase> Model::phases() const& {
  const int64_t rows = records() - 2, last = records() - 1;
  std::vector<NumberedPhase> all = {numbered(embedding, {0, rows})};
  std::vector<int64_t> first_phases;  // number of each layer's first phase
  int64_t record = 1;
  for (const Layer& layer : layers) {
    first_phases.push_back(std::ssize(all));
    std::vector<int64_t> numbers(layer.records.size());
    for (int64_t& number : numbers) number = record++;
    for (const auto& phase : layer.phases) {
      NumberedPhase made = numbered(*phase, numbers);
      if (const auto read = phase->reads_shared()) {
        ensure(read->layer >= 0 && read->layer < std::ssize(first_phases), "a phase reads what one below it has made");
        made.reads = first_phases[static_cast<size_t>(read->layer)] + read->phase;
        ensure(
            made.reads < std::ssize(all) && all[static_cast<size_t>(made.reads)].phase->shared_width() == read->width,
            "a phase reads what one below it has made, in its width");
      }
      all.push_back(std::move(made));
    }
  }
  all.push_back(numbered(head, {last, 0, rows}));
  for (int64_t p = 0; p < std::ssize(all); ++p) {
    ensure(
        all[static_cast<size_t>(p)].phase->shared_width() == 0 || std::ranges::count(all, p, &NumberedPhase::reads) > 0,
        "a shared activation has a reader");
  }
  return all;
}

int64_t Model::workspace_bytes() const {
  int64_t most = 0;
  for (const NumberedPhase& p : phases()) most = std::max(most, p.phase->workspace_bytes());
  return most;
}

int64_t Model::table_bytes() const {
  int64_t floats = rope_floats(config.rope, config.full_head_dim(), shape.positions);
  if (config.window_rope) floats += rope_floats(*config.window_rope, config.head_dim, shape.positions);
  return floats * 4;
}

std::vector<float> Model::make_tables() const {
  std::vector<float> tables = make_rope_table(config.rope, config.full_head_dim(), shape.positions);
  if (config.window_rope) {
    const std::vector<float> more = make_rope_table(*config.window_rope, config.head_dim, shape.positions);
    tables.insert(tables.end(), more.begin(), more.end());
  }
  return tables;
}

namespace {

// Random numbers in MXFP4, with about the deviation `std`: all codes are as likely, with one power for all blocks.
void init_mxfp4(const TensorSpec& tensor, double std, uint64_t seed, int64_t begin, int64_t count, float* out) {
  constexpr double kDeviation = 2.926;  // of the codes' values
  constexpr int64_t kCodes = 16;        // in a word
  const auto power = static_cast<float>(std::exp2(std::round(std::log2(std / kDeviation))));
  const uint64_t purpose = tensor.name_hash();
  for (int64_t i = begin; i < begin + count;) {
    uint64_t word = random_bits(seed, purpose, static_cast<uint64_t>(i / kCodes)) >> (4 * (i % kCodes));
    const int64_t end = std::min((i / kCodes + 1) * kCodes, begin + count);
    for (; i < end; ++i, word >>= 4) *out++ = power * mxfp4_value(static_cast<unsigned>(word & 15u));
  }
}

// The rows of the random table.
void init_token_rows(const ModelConfig& c, const TensorSpec& rows, uint64_t seed, int64_t begin, int64_t count,
                     float* out) {
  const std::string name = table_of(rows);
  const TensorSpec table{
      .name = name,
      .rows = c.vocab,
      .cols = c.hidden,
      .role = name == embedding_tensors(c).front().name ? TensorRole::embedding : TensorRole::matrix};
  for (int64_t end = begin + count; begin < end;) {
    const int64_t row = begin / rows.cols, col = begin % rows.cols, run = std::min(rows.cols - col, end - begin);
    init_tensor(c, table, seed, rows.ids[static_cast<size_t>(row)] * rows.cols + col, run, out);
    begin += run;
    out += run;
  }
}

void init_vector(const ModelConfig& c, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out) {
  const auto fill = [&](double value) { std::fill(out, out + count, static_cast<float>(value)); };
  switch (tensor.init) {
    case VectorInit::by_role: return fill(tensor.role == TensorRole::norm ? 1 - c.norm_offset : 0);
    case VectorInit::ones: return fill(1);
    case VectorInit::log_of_place:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(std::log(static_cast<double>(begin + i + 1)));
      return;
    case VectorInit::log_of_uniform: break;
  }
  constexpr double kLeast = 0.01, kMost = 16;
  for (int64_t i = 0; i < count; ++i) {
    const double drawn = random_uniform(seed, tensor.name_hash(), static_cast<uint64_t>(begin + i));
    out[i] = static_cast<float>(std::log(kLeast + (kMost - kLeast) * drawn));
  }
}

}  // namespace

float drawn_fp8_scale(const ModelConfig& config) {
  constexpr double kDeviation = 64;  // of the codes' values, of which the largest is 448
  return static_cast<float>(std::exp2(std::round(std::log2(config.init_std / kDeviation))));
}

void init_tensor(const ModelConfig& c, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out) {
  if (tensor.role == TensorRole::token_rows) return init_token_rows(c, tensor, seed, begin, count, out);
  if (tensor.is_adapter()) return init_adapter(tensor, seed, begin, count, out);
  if (tensor.is_vector()) return init_vector(c, tensor, seed, begin, count, out);
  if (tensor.packing == WeightPacking::mxfp4) return init_mxfp4(tensor, c.init_std, seed, begin, count, out);
  const uint64_t purpose = tensor.name_hash();
  const float std = static_cast<float>(c.init_std);
  for (int64_t i = 0; i < count;) {
    const int64_t element = begin + i;
    const auto pair = random_normal_pair(seed, purpose, static_cast<uint64_t>(element / 2));
    for (int64_t lane = element % 2; lane < 2 && i < count; ++lane, ++i) out[i] = std * pair[static_cast<size_t>(lane)];
  }
  if (c.pad_id >= 0 && tensor.role == TensorRole::embedding) {
    const int64_t first = std::clamp(c.pad_id * c.hidden - begin, int64_t{0}, count);
    const int64_t last = std::clamp((c.pad_id + 1) * c.hidden - begin, int64_t{0}, count);
    std::fill(out + first, out + last, 0.0f);
  }
  if (tensor.packing == WeightPacking::fp8) {
    const float scale = drawn_fp8_scale(c);
    std::transform(out, out + count, out,
                   [&](float x) { return fp8_value(std::to_integer<unsigned>(nearest_fp8(x, scale))) * scale; });
  }
  if (tensor.exact && tensor.dtype == DType::bf16)
    std::transform(out, out + count, out, [](float x) { return to_float(to_bf16(x)); });
}

}  // namespace megatrain
