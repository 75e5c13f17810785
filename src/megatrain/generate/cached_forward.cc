#include "megatrain/generate/cached_forward.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/model/layers/mixers/attention.h"
#include "megatrain/model/model.h"
#include "megatrain/model/stored_tensors.h"

namespace megatrain {

namespace {

// The int32 input arrays of a pass: sequences, positions, rows of the embedding, rows whose logits are wanted, angles,
// ids, trained rows of tokens (T each).
constexpr int64_t kInputArrays = 7;

int64_t rounded(int64_t bytes) { return round_up(bytes, 256); }

// Experts per record, from the first record of experts; 0 if there are none.
int64_t experts_per_record(const ModelConfig& config, const std::vector<LayerRecord>& records) {
  if (config.experts.count == 0) return 0;
  const auto has_experts = [](const LayerRecord& record) {
    return !experts_prefix(record.layout().tensors.front().name).empty();
  };
  const auto first = std::ranges::find_if(records, has_experts);
  return first == records.end() ? 0 : std::ssize(first->layout().norm_parts());
}

ModelShape model_shape(DType dtype, int64_t experts_per_record, const GeneratorOptions& options) {
  return {.dtype = dtype,
          .tokens = std::max({options.chunk_tokens, options.max_batch, int64_t{1}}),
          .positions = options.max_context,
          .experts_per_record = experts_per_record};
}

Model model_of(const ModelConfig& config, DType dtype, int64_t experts_per_record, const GeneratorOptions& options) {
  return make_model(config, model_shape(dtype, experts_per_record, options), {.adapter = options.adapter});
}

Model model_of(const ModelConfig& config, const std::vector<LayerRecord>& records, const GeneratorOptions& options) {
  return model_of(config, records.front().dtype(), experts_per_record(config, records), options);
}

bool computes_in_place(const Device& device, const GeneratorOptions& options) {
  return options.in_place && device.kind() == DeviceKind::cpu;
}

}  // namespace

std::vector<CachedForward::Variant> CachedForward::variants_of(const Model& base, const GeneratorOptions& options) {
  std::vector<Variant> variants;
  variants.reserve(options.choices.size());  // phases refer to their model, which must not move
  for (const ChoosableAdapter& choice : options.choices) {
    Variant& variant =
        variants.emplace_back(Variant{.model = make_model(base.config, base.shape, {.adapter = choice.rules})});
    const std::vector<LayerLayout> layouts = variant.model.layouts();
    variant.phases = variant.model.phases();
    for (const Model::NumberedPhase& p : variant.phases) {
      const bool adapted =
          p.phase->decodes() && !p.whole.empty() && layouts[static_cast<size_t>(p.whole.back())].is_adapter();
      variant.adapter_at.push_back(adapted ? variant.bytes : -1);
      if (!adapted) continue;
      const LayerLayout& layout = layouts[static_cast<size_t>(p.whole.back())];
      variant.bytes += rounded(layout.elements * dtype_bytes(layout.dtype()));
    }
  }
  return variants;
}

CachedForward::Shape::Shape(const Model& built, const std::vector<Variant>& variants, const GeneratorOptions& options)
    : dtype(built.shape.dtype), tokens(built.shape.tokens) {
  const ModelConfig& model = built.config;
  const std::vector<LayerLayout> layouts = built.layouts();
  const int64_t last = std::ssize(layouts) - 1;
  const int64_t element = dtype_bytes(dtype), hidden_bytes = model.hidden * element;
  int64_t block_bytes = 0, width = model.hidden, halves = 1;
  logit_rows = options.max_batch;
  logit_rows = std::max(logit_rows, std::min(tokens, options.logits_bytes / (model.vocab * 4)));
  workspace_bytes = built.head.decode_workspace_bytes(logit_rows);
  cache_bytes = row_bytes = 0;
  for (const Model::NumberedPhase& p : built.phases()) {
    cache_at.push_back(cache_bytes);
    if (!p.phase->decodes()) continue;
    if (p.looks_up >= 0) {
      const int64_t cols = layouts[static_cast<size_t>(p.looks_up)].tensors.front().cols;
      tables.push_back({.phase = cache_at.size() - 1, .record = p.looks_up, .width = cols, .at = row_bytes});
      row_bytes += rounded(tokens * cols * element);
    }
    for (const int64_t number : p.whole) {
      const LayerLayout& layout = layouts[static_cast<size_t>(number)];
      ranges.push_back({number, 0, layout.elements * dtype_bytes(layout.dtype())});
      block_bytes = std::max(block_bytes, ranges.back().bytes);
    }
    at_once = std::max(at_once, std::ssize(p.whole));
    cache_bytes += p.phase->cache_bytes(options.max_batch, options.max_context);
    workspace_bytes = std::max(workspace_bytes, p.phase->decode_workspace_bytes(tokens));
    width = std::max(width, p.phase->out_width());
    if (p.phase->in_width() != p.phase->out_width()) halves = 2;
  }
  token_row_bytes = CachedForward::token_row_bytes(built);
  for (const Variant& variant : variants) {
    adapter_bytes += variant.bytes;
    token_row_bytes += CachedForward::token_row_bytes(variant.model);
    workspace_bytes = std::max(workspace_bytes, variant.model.head.decode_workspace_bytes(logit_rows));
    for (const Model::NumberedPhase& p : variant.phases)
      if (p.phase->decodes()) workspace_bytes = std::max(workspace_bytes, p.phase->decode_workspace_bytes(tokens));
  }
  layer_ranges = ranges.size();
  // Pieces no larger than a block, streamed or not: how the table is split must not depend on the memory.
  const int64_t table = model.tied ? 0 : last;
  const int64_t table_at = built.head.table().offset * element;
  const int64_t piece = std::max<int64_t>(block_bytes / hidden_bytes / 8 * 8, 8);
  for (int64_t row = 0; row < model.vocab; row += piece) {
    table_begin.push_back(row);
    ranges.push_back({table, table_at + row * hidden_bytes, std::min(piece, model.vocab - row) * hidden_bytes});
  }
  table_begin.push_back(model.vocab);
  norm = {last, built.head.norm().offset * element, hidden_bytes};

  table_bytes = built.table_bytes();
  x_bytes = halves * rounded(tokens * width * element);
  logits_bytes = logit_rows * model.vocab * 4;
  input_bytes = tokens * kInputArrays * 4;
  ops = {.dtype = dtype,
         .tokens = tokens,
         .attention = attention_shapes(model, tokens),
         .hidden = model.hidden,
         .ff = model.ff,
         .generating = true};
}

int64_t CachedForward::Shape::fixed_bytes() const {
  int64_t sum = 0;
  for (const int64_t bytes : {cache_bytes, table_bytes, norm.bytes, workspace_bytes, x_bytes, row_bytes, logits_bytes,
                              input_bytes, adapter_bytes, token_row_bytes})
    sum += LentMemory::piece_bytes(bytes);
  return sum;
}

std::vector<WeightRange> CachedForward::Shape::weights_in(const std::vector<LayerRecord>& records) const {
  ensure(std::ssize(records) == norm.record + 1, "records are the model's");
  std::vector<WeightRange> weights;
  for (const Range& range : ranges) {
    const LayerRecord& record = records[static_cast<size_t>(range.record)];
    ensure(range.begin + range.bytes <= record.weight_bytes(), "records have the model's sizes");
    weights.push_back({&record, range.begin, range.bytes});
  }
  return weights;
}

int64_t CachedForward::least_bytes(const Device& device, Ops& ops, const ModelConfig& model,
                                   const std::vector<LayerRecord>& records, const GeneratorOptions& options) {
  const Model built = model_of(model, records, options);
  const Shape shape(built, variants_of(built, options), options);
  return shape.fixed_bytes() + ops.scratch_bytes(shape.ops) +
         DeviceWeights::least_bytes(shape.weights_in(records), computes_in_place(device, options), shape.at_once);
}

GenerationNeed CachedForward::most_needed(const ModelConfig& model, DType dtype, int64_t experts_per_record,
                                          const GeneratorOptions& options, bool in_place) {
  const Model built = model_of(model, dtype, experts_per_record, options);
  const Shape shape(built, variants_of(built, options), options);
  std::vector<int64_t> coming;
  for (const Shape::Range& range : shape.ranges) {
    if (!in_place) coming.push_back(range.bytes);
  }
  return {.bytes = shape.fixed_bytes() + DeviceWeights::least_bytes(coming, shape.at_once), .ops = shape.ops};
}

namespace {

void check_fit(const Device& device, int64_t needed, int64_t cache, const GeneratorOptions& options) {
  if (needed <= options.memory_bytes) return;
  fail(ExitCode::cannot_fit,
       fmt::format("generating needs at least {} of {} memory, {} of it for the keys and values of {} sequences of "
                   "{} tokens, and {} may be used; ask for fewer tokens or sequences at once, or allow more memory",
                   format_bytes(needed), device.kind() == DeviceKind::cpu ? "host" : "device", format_bytes(cache),
                   options.max_batch, options.max_context, format_bytes(std::max<int64_t>(options.memory_bytes, 0))));
}

}  // namespace

CachedForward::CachedForward(Device& device, Ops& ops, const ModelConfig& model,
                             const std::vector<LayerRecord>& records, const GeneratorOptions& options)
    : CachedForward(device, ops, model_of(model, records, options), records, options) {}

std::span<std::byte> CachedForward::checked_memory(const Device& device) const {
  const int64_t needed =
      shape_.fixed_bytes() + DeviceWeights::least_bytes(shape_.weights_in(records_), in_place_, shape_.at_once);
  if (needed <= std::ssize(options_.lent)) return options_.lent;
  check_fit(device, needed + ops_.scratch_bytes(shape_.ops), shape_.cache_bytes, options_);
  return {};
}

CachedForward::CachedForward(Device& device, Ops& ops, Model model, const std::vector<LayerRecord>& records,
                             const GeneratorOptions& options)
    : ops_(ops),
      model_(std::move(model)),
      phases_(model_.phases()),
      records_(records),
      options_(options),
      variants_(variants_of(model_, options)),
      shape_(model_, variants_, options),
      in_place_(computes_in_place(device, options)),
      memory_(device, checked_memory(device)),
      own_bytes_(memory_.left().empty() ? options.memory_bytes - shape_.fixed_bytes() - ops.scratch_bytes(shape_.ops)
                                        : std::max<int64_t>(options.memory_bytes, 0)),
      cache_(memory_.take(shape_.cache_bytes, "keys and values")),
      tables_(memory_.take(shape_.table_bytes, "generation")),
      norm_(memory_.take(shape_.norm.bytes, "generation")),
      workspace_(memory_.take(shape_.workspace_bytes, "generation")),
      x_(memory_.take(shape_.x_bytes, "generation")),
      rows_(memory_.take(shape_.row_bytes, "generation")),
      logits_(memory_.take(shape_.logits_bytes, "generation")),
      inputs_(memory_.take(shape_.input_bytes, "generation")),
      adapters_(memory_.take(shape_.adapter_bytes, "adapters")),
      token_rows_(memory_.take(shape_.token_row_bytes, "adapters")),
      host_x_(device.allocate_host(static_cast<size_t>(shape_.x_bytes), "generation")),
      host_rows_(device.allocate_host(static_cast<size_t>(shape_.row_bytes), "generation")),
      host_inputs_(device.allocate_host(static_cast<size_t>(shape_.input_bytes), "generation")),
      host_logits_(device.allocate_host(static_cast<size_t>(shape_.logits_bytes), "generation")),
      weights_(device, shape_.weights_in(records), own_bytes_, in_place_, shape_.at_once, memory_.left()),
      compute_(device.make_stream("generate")) {
  ops.reserve(shape_.ops);
  const std::vector<float> tables = model_.make_tables();
  device.copy_now(tables_.data(), tables.data(), tables.size() * sizeof(float));
  device.copy_now(norm_.data(), records.back().weights() + shape_.norm.begin, static_cast<size_t>(shape_.norm.bytes));
  copy_adapters(device);
  copy_token_rows(device);
}

// The record takes them, and the ids of the head's rows behind it.
int64_t CachedForward::token_row_bytes(const Model& model) {
  if (!model.token_rows) return 0;
  return rounded(model.token_rows->weight_bytes()) + rounded(model.head.token_rows().count() * 4);
}

void CachedForward::copy_token_rows(Device& device) {
  std::byte* at = token_rows_.data();
  const auto add = [&](const Model& model, const std::vector<LayerRecord>& records) {
    TrainedRows& trained = trained_rows_.emplace_back(TrainedRows{.embedding = &model.embedding, .head = &model.head});
    if (!model.token_rows) return;
    const auto record = std::ranges::find_if(records, [](const LayerRecord& r) { return r.layout().is_token_rows(); });
    ensure(record != records.end() && record->weight_bytes() == model.token_rows->weight_bytes(),
           "the records have the model's rows of tokens");
    const TokenRows &rows = model.embedding.token_rows(), &of_head = model.head.token_rows();
    if (rows.any()) trained.slot.assign(static_cast<size_t>(model.config.vocab), -1);
    for (size_t i = 0; i < rows.ids.size(); ++i)
      trained.slot[static_cast<size_t>(rows.ids[i])] = static_cast<int32_t>(i);
    trained.weights = at;
    device.copy_now(at, record->weights(), static_cast<size_t>(record->weight_bytes()));
    std::byte* ids = at + rounded(record->weight_bytes());
    if (of_head.any()) device.copy_now(ids, of_head.ids.data(), of_head.ids.size() * sizeof(int32_t));
    trained.head_ids = reinterpret_cast<const int32_t*>(ids);
    at += token_row_bytes(model);
  };
  add(model_, records_);
  for (size_t i = 0; i < variants_.size(); ++i) add(variants_[i].model, *options_.choices[i].records);
}

void CachedForward::copy_adapters(Device& device) {
  int64_t first = 0;  // of a choice in adapters_
  for (size_t i = 0; i < variants_.size(); ++i) {
    Variant& variant = variants_[i];
    const std::vector<LayerLayout> layouts = variant.model.layouts();
    const std::vector<LayerRecord>& records = *options_.choices[i].records;
    for (size_t p = 0; p < variant.phases.size(); ++p) {
      int64_t& at = variant.adapter_at[p];
      if (at < 0) continue;
      at += first;
      // by name: phases do not take their records in order (the inputs of Gemma 4's layers)
      const LayerLayout& layout = layouts[static_cast<size_t>(variant.phases[p].whole.back())];
      const auto record = std::ranges::find_if(records, [&](const LayerRecord& r) {
        return r.layout().tensors.front().name == layout.tensors.front().name;
      });
      ensure(record != records.end(), "a choice has the adapters of every layer");
      device.copy_now(adapters_.data() + at, record->weights(), static_cast<size_t>(record->weight_bytes()));
    }
    first += variant.bytes;
  }
}

bool CachedForward::rewinds() const {
  return std::all_of(phases_.begin(), phases_.end(), [](const auto& p) { return p.phase->cache_rewinds(); });
}

SequenceCache CachedForward::cache_of(size_t phase) const {
  return {.bytes = cache_.data() + shape_.cache_at[phase],
          .sequences = options_.max_batch,
          .context = options_.max_context};
}

void CachedForward::stage_rows(const LayerRecord& table, std::byte* rows, int64_t row, int32_t id) const {
  if (table.tier() != Tier::host) return;
  const TensorSpec& tensor = table.layout().tensors.front();
  const int64_t element = dtype_bytes(shape_.dtype), bytes = tensor.cols * element;
  std::memcpy(rows + row * bytes, table.weights() + tensor.offset * element + id * bytes, static_cast<size_t>(bytes));
}

// Writes the inputs and the rows of tables in host memory. Returns the number of tokens.
int64_t CachedForward::stage(const std::vector<Feed>& feeds, const TrainedRows& trained, int64_t* wanted) {
  int32_t* sequences = reinterpret_cast<int32_t*>(host_inputs_.data());
  int32_t *positions = sequences + shape_.tokens, *from = positions + shape_.tokens, *rows = from + shape_.tokens,
          *angles = rows + shape_.tokens, *ids = angles + shape_.tokens, *slots = ids + shape_.tokens;
  const LayerRecord& embedding = records_.front();
  int64_t tokens = 0;
  *wanted = 0;
  for (const Feed& feed : feeds) {
    const int64_t count = static_cast<int64_t>(feed.ids.size());
    ensure(feed.sequence >= 0 && feed.sequence < options_.max_batch && count > 0 &&
               feed.position + count <= options_.max_context && tokens + count <= shape_.tokens,
           "new tokens fit the cache and the pass");
    const int64_t above = model_.config.rope.long_above();
    const bool in_long = above > 0 && std::max(feed.length, feed.position + count) > above;
    for (int64_t i = 0; i < count; ++i, ++tokens) {
      const int32_t id = feed.ids[static_cast<size_t>(i)];
      ensure(id >= 0 && id < model_.config.vocab, "an id is below the size of the vocabulary");
      sequences[tokens] = static_cast<int32_t>(feed.sequence);
      positions[tokens] = static_cast<int32_t>(feed.position + i);
      angles[tokens] = static_cast<int32_t>(feed.position + i + (in_long ? options_.max_context : 0));
      from[tokens] = embedding.tier() == Tier::host ? static_cast<int32_t>(tokens) : id;
      ids[tokens] = id;
      slots[tokens] = trained.slot.empty() ? -1 : trained.slot[static_cast<size_t>(id)];
      stage_rows(embedding, host_x_.data(), tokens, id);
      for (const Shape::Table& table : shape_.tables)
        stage_rows(records_[static_cast<size_t>(table.record)], host_rows_.data() + table.at, tokens, id);
    }
    if (!feed.logits) continue;
    ensure(!feed.every || options_.logits_bytes > 0, "logits of every token were announced");
    for (int64_t i = feed.every ? count : 1; i > 0; --i) rows[(*wanted)++] = static_cast<int32_t>(tokens - i);
  }
  return tokens;
}

// The weight ranges of a pass, marked if their phase fetches only what its tokens select. The head runs `heads` times.
std::vector<DeviceWeights::Turn> CachedForward::turns(int64_t tokens, int64_t heads) const {
  std::vector<DeviceWeights::Turn> list(shape_.layer_ranges);
  for (size_t range = 0; range < list.size(); ++range) list[range].range = range;
  for (; heads > 0; --heads)
    for (size_t range = shape_.layer_ranges; range < shape_.ranges.size(); ++range) list.push_back({.range = range});
  size_t range = 0;
  for (const Model::NumberedPhase& p : phases_) {
    for (int64_t i = 0; p.phase->decodes() && i < std::ssize(p.whole); ++i, ++range)
      list[range].chosen = p.phase->decode_chooses(i, tokens);
  }
  return list;
}

View CachedForward::rows_of(size_t phase, int64_t tokens) {
  const auto table = std::ranges::find(shape_.tables, phase, &Shape::Table::phase);
  if (table == shape_.tables.end()) return {};
  const LayerRecord& record = records_[static_cast<size_t>(table->record)];
  const View rows = matrix(rows_.data() + table->at, shape_.dtype, tokens, table->width);
  if (record.tier() == Tier::host) {
    compute_->copy(rows.data, host_rows_.data() + table->at, static_cast<size_t>(rows.bytes()));
  } else {
    const int32_t* ids = reinterpret_cast<const int32_t*>(inputs_.data()) + 5 * shape_.tokens;
    ops_.embedding_forward(
        *compute_,
        {.table = matrix(record.weights(), shape_.dtype, model_.config.vocab, rows.cols), .index = ids, .out = rows});
  }
  return rows;
}

// From the embedding to the head's input (T, H). A phase of equal widths works in place, others use the other half of
// x_.
View CachedForward::run_layers(const NewTokens& fresh, const TrainedRows& trained, const Variant* variant) {
  Stream& stream = *compute_;
  View x = matrix(x_.data(), shape_.dtype, fresh.tokens, model_.config.hidden);
  if (records_.front().tier() == Tier::host) {
    stream.copy(x.data, host_x_.data(), static_cast<size_t>(x.bytes()));
    if (model_.embedding.scale() != 1)  // in place: rows copied from the host are indexed by their position
      model_.embedding.look_up(ops_, stream, {.table = x, .index = fresh.sequences + 2 * shape_.tokens, .out = x});
  } else {
    model_.embedding.look_up(ops_, stream,
                             {.table = matrix(records_.front().weights(), shape_.dtype, model_.config.vocab, x.cols),
                              .index = fresh.sequences + 2 * shape_.tokens,
                              .out = x});
  }
  if (!trained.slot.empty())
    trained.embedding->replace_rows(ops_, stream, trained.weights, fresh.sequences + 6 * shape_.tokens, x);
  size_t range = 0;
  for (size_t p = 0; p < phases_.size(); ++p) {
    const Phase& phase = variant ? *variant->phases[p].phase : *phases_[p].phase;
    if (!phase.decodes()) continue;
    const size_t count = phases_[p].whole.size();
    std::vector<std::byte*> weights;
    for (size_t i = 0; i < count; ++i) weights.push_back(weights_.take(stream, range + i));
    if (variant && variant->adapter_at[p] >= 0) weights.push_back(adapters_.data() + variant->adapter_at[p]);
    decltype(Phase::Decode::fetch) fetch;
    bool chooses = false;  // whether the phase selects from weights that stream
    for (size_t i = 0; i < count; ++i)
      chooses |= weights_.streams(range + i) && phase.decode_chooses(static_cast<int64_t>(i), fresh.tokens);
    if (chooses) {
      fetch = [&](int64_t record, const std::vector<Phase::ByteRange>& wanted) {
        const size_t at = range + static_cast<size_t>(record);
        if (!weights_.streams(at)) return;
        for (const Phase::ByteRange& part : wanted) weights_.fetch(stream, at, part.begin, part.bytes);
      };
    }
    std::byte* other = x_.data() + (x.data == x_.data() ? shape_.x_bytes / 2 : 0);
    const View y =
        phase.in_width() == phase.out_width() ? x : matrix(other, shape_.dtype, fresh.tokens, phase.out_width());
    phase.decode(ops_, stream,
                 {.weights = weights,
                  .fetch = fetch,
                  .x = x,
                  .y = y,
                  .tokens = fresh,
                  .cache = cache_of(p),
                  .read = phases_[p].reads < 0 ? SequenceCache{} : cache_of(static_cast<size_t>(phases_[p].reads)),
                  .rows = rows_of(p, fresh.tokens),
                  .tables = reinterpret_cast<const float*>(tables_.data()),
                  .workspace = workspace_.data()});
    for (size_t i = 0; i < count; ++i) weights_.done(stream, range + i);
    range += count;
    x = y;
  }
  return x;
}

// The logits (rows, V) of rows index[0..rows) of x, on the host.
std::span<const float> CachedForward::run_head(View x, const int32_t* index, int64_t rows, const TrainedRows& trained) {
  Stream& stream = *compute_;
  const View logits = matrix(logits_.data(), DType::f32, rows, model_.config.vocab);
  model_.head.decode_norm(ops_, stream,
                          {.norm = norm_.data(), .x = x, .index = index, .rows = rows, .workspace = workspace_.data()});
  for (size_t piece = 0; piece + 1 < shape_.table_begin.size(); ++piece) {
    const size_t range = shape_.layer_ranges + piece;
    model_.head.decode_logits(ops_, stream,
                              {.table = weights_.take(stream, range),
                               .begin = shape_.table_begin[piece],
                               .count = shape_.table_begin[piece + 1] - shape_.table_begin[piece],
                               .rows = rows,
                               .logits = logits,
                               .workspace = workspace_.data()});
    weights_.done(stream, range);
  }
  if (trained.head->token_rows().any())
    trained.head->decode_token_rows(ops_, stream,
                                    {.weights = trained.weights,
                                     .ids = trained.head_ids,
                                     .rows = rows,
                                     .logits = logits,
                                     .workspace = workspace_.data()});
  stream.copy(host_logits_.data(), logits.data, static_cast<size_t>(logits.bytes()));
  stream.synchronize();
  return {reinterpret_cast<const float*>(host_logits_.data()), static_cast<size_t>(rows * model_.config.vocab)};
}

void CachedForward::run(const std::vector<Feed>& feeds, size_t adapter, const OnLogits& on_logits) {
  int64_t wanted = 0;
  const TrainedRows& trained = trained_rows_.at(adapter);
  const int64_t tokens = stage(feeds, trained, &wanted);
  ensure(tokens > 0, "a pass has new tokens");
  weights_.begin_pass(turns(tokens, ceil_div(wanted, shape_.logit_rows)));

  Stream& stream = *compute_;
  stream.copy(inputs_.data(), host_inputs_.data(), static_cast<size_t>(shape_.input_bytes));
  const int32_t* inputs = reinterpret_cast<const int32_t*>(inputs_.data());
  const View x = run_layers({.tokens = tokens,
                             .sequences = inputs,
                             .positions = inputs + shape_.tokens,
                             .angles = inputs + 4 * shape_.tokens},
                            trained, adapter > 0 ? &variants_.at(adapter - 1) : nullptr);
  for (int64_t first = 0; first < wanted; first += shape_.logit_rows) {
    const int64_t rows = std::min(shape_.logit_rows, wanted - first);
    on_logits(first, run_head(x, inputs + 3 * shape_.tokens + first, rows, trained));
  }
  stream.synchronize();
  weights_.copies().check();
}

std::span<const float> CachedForward::run(const std::vector<Feed>& feeds, size_t adapter) {
  std::span<const float> all;
  run(feeds, adapter, [&](int64_t first, std::span<const float> logits) {
    ensure(first == 0, "the logits of a pass come at once");
    all = logits;
  });
  return all;
}

}  // namespace megatrain
