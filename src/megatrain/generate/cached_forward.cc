#include "megatrain/generate/cached_forward.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/model/layers.h"
#include "megatrain/model/rope_table.h"

namespace megatrain {

namespace {

// Words of a pass's inputs: sequences, positions, ids (T each), rows whose logits are wanted (T).
constexpr int64_t kInputArrays = 4;

int64_t rounded(int64_t bytes) { return round_up(bytes, 256); }

}  // namespace

CachedForward::Shape::Shape(const Device& device, Ops& device_ops, const ModelConfig& model,
                            const std::vector<LayerRecord>& records, const GeneratorOptions& options)
    : dtype(records.front().dtype()),
      in_place(options.in_place && device.kind() == DeviceKind::cpu),
      tokens(std::max({options.chunk_tokens, options.max_batch, int64_t{1}})) {
  ensure(static_cast<int64_t>(records.size()) == model.layers + 2, "records are the model's layers");
  const int64_t element = dtype_bytes(dtype), row_bytes = model.hidden * element;
  int64_t block_bytes = 0;
  for (int64_t block = 0; block < model.layers; ++block) {
    const LayerRecord& record = records[static_cast<size_t>(block + 1)];
    ranges.push_back({&record, 0, record.weight_bytes()});
    block_bytes = std::max(block_bytes, record.weight_bytes());
  }
  // Pieces no larger than a block, whether they stream or not: how the table is cut must not depend on the memory.
  const HeadOffsets at = head_offsets(model);
  const LayerRecord& table = model.tied ? records.front() : records.back();
  const int64_t table_at = (model.tied ? table.layout().tensors.front().offset : at.table) * element;
  const int64_t piece = std::max<int64_t>(block_bytes / row_bytes / 8 * 8, 8);
  for (int64_t row = 0; row < model.vocab; row += piece) {
    table_begin.push_back(row);
    ranges.push_back({&table, table_at + row * row_bytes, std::min(piece, model.vocab - row) * row_bytes});
  }
  table_begin.push_back(model.vocab);
  norm = {&records.back(), at.norm * element, row_bytes};

  cache_bytes = rounded(options.max_batch * options.max_context * model.kv_dim() * element) * 2 * model.layers;
  rope_bytes = options.max_context * model.head_dim * 4;
  workspace_bytes = std::max(BlockDecode(model, dtype, tokens, {}).workspace_bytes(),
                             HeadDecode(model, dtype, options.max_batch).workspace_bytes());
  x_bytes = tokens * row_bytes;
  logits_bytes = options.max_batch * model.vocab * 4;
  input_bytes = tokens * kInputArrays * 4;
  ops = {.dtype = dtype,
         .attention = {.tokens = tokens, .heads = model.heads, .kv_heads = model.kv_heads, .head_dim = model.head_dim},
         .hidden = model.hidden,
         .ff = model.ff,
         .generating = true};
  scratch_bytes = device_ops.scratch_bytes(ops);
}

int64_t CachedForward::Shape::fixed_bytes() const {
  return cache_bytes + rope_bytes + norm.bytes + workspace_bytes + x_bytes + logits_bytes + input_bytes + scratch_bytes;
}

int64_t CachedForward::least_bytes(const Device& device, Ops& ops, const ModelConfig& model,
                                   const std::vector<LayerRecord>& records, const GeneratorOptions& options) {
  const Shape shape(device, ops, model, records, options);
  return shape.fixed_bytes() + DeviceWeights::least_bytes(shape.ranges, shape.in_place);
}

namespace {

void check_fit(int64_t needed, int64_t cache, const GeneratorOptions& options) {
  if (needed <= options.memory_bytes) return;
  fail(ExitCode::cannot_fit,
       fmt::format("generating needs at least {} of device memory, {} of it for the keys and values of {} sequences of "
                   "{} tokens, and {} may be used; ask for fewer tokens or sequences at once, or allow more memory",
                   format_bytes(needed), format_bytes(cache), options.max_batch, options.max_context,
                   format_bytes(std::max<int64_t>(options.memory_bytes, 0))));
}

}  // namespace

CachedForward::CachedForward(Device& device, Ops& ops, const ModelConfig& model,
                             const std::vector<LayerRecord>& records, const GeneratorOptions& options)
    : CachedForward(device, ops, model, records, options, Shape(device, ops, model, records, options)) {}

CachedForward::CachedForward(Device& device, Ops& ops, const ModelConfig& model,
                             const std::vector<LayerRecord>& records, const GeneratorOptions& options, Shape shape)
    : ops_(ops),
      model_(model),
      records_(records),
      options_(options),
      shape_((check_fit(shape.fixed_bytes() + DeviceWeights::least_bytes(shape.ranges, shape.in_place),
                        shape.cache_bytes, options),
              std::move(shape))),
      cache_(device.allocate(static_cast<size_t>(shape_.cache_bytes), "keys and values")),
      rope_(device.allocate(static_cast<size_t>(shape_.rope_bytes), "generation")),
      norm_(device.allocate(static_cast<size_t>(shape_.norm.bytes), "generation")),
      workspace_(device.allocate(static_cast<size_t>(shape_.workspace_bytes), "generation")),
      x_(device.allocate(static_cast<size_t>(shape_.x_bytes), "generation")),
      logits_(device.allocate(static_cast<size_t>(shape_.logits_bytes), "generation")),
      inputs_(device.allocate(static_cast<size_t>(shape_.input_bytes), "generation")),
      host_rows_(device.allocate_host(static_cast<size_t>(shape_.x_bytes), "generation")),
      host_inputs_(device.allocate_host(static_cast<size_t>(shape_.input_bytes), "generation")),
      host_logits_(device.allocate_host(static_cast<size_t>(shape_.logits_bytes), "generation")),
      weights_(device, shape_.ranges, options.memory_bytes - shape_.fixed_bytes(), shape_.in_place),
      block_(model, shape_.dtype, shape_.tokens,
             {.cos = reinterpret_cast<const float*>(rope_.data()),
              .sin = reinterpret_cast<const float*>(rope_.data() + shape_.rope_bytes / 2)}),
      head_(model, shape_.dtype, options.max_batch),
      compute_(device.make_stream("generate")) {
  ops.reserve(shape_.ops);
  const std::vector<float> rope = make_rope_table(model, options.max_context);
  device.copy_now(rope_.data(), rope.data(), rope.size() * sizeof(float));
  device.copy_now(norm_.data(), shape_.norm.record->weights() + shape_.norm.begin,
                  static_cast<size_t>(shape_.norm.bytes));
}

BlockCache CachedForward::cache_of(int64_t block) const {
  const int64_t rows = options_.max_batch * options_.max_context, plane = shape_.cache_bytes / (2 * model_.layers);
  std::byte* at = cache_.data() + 2 * block * plane;
  return {.k = matrix(at, shape_.dtype, rows, model_.kv_dim()),
          .v = matrix(at + plane, shape_.dtype, rows, model_.kv_dim()),
          .context = options_.max_context};
}

// Writes the inputs and, when the embedding lies on the host, its rows; returns the number of tokens.
int64_t CachedForward::stage(const std::vector<Feed>& feeds, int64_t* wanted) {
  int32_t* sequences = reinterpret_cast<int32_t*>(host_inputs_.data());
  int32_t *positions = sequences + shape_.tokens, *ids = positions + shape_.tokens, *rows = ids + shape_.tokens;
  const LayerRecord& embedding = records_.front();
  const int64_t row_bytes = model_.hidden * dtype_bytes(shape_.dtype);
  const std::byte* table = embedding.weights() + embedding.layout().tensors.front().offset * dtype_bytes(shape_.dtype);
  int64_t tokens = 0;
  *wanted = 0;
  for (const Feed& feed : feeds) {
    const int64_t count = static_cast<int64_t>(feed.ids.size());
    ensure(feed.sequence >= 0 && feed.sequence < options_.max_batch && count > 0 &&
               feed.position + count <= options_.max_context && tokens + count <= shape_.tokens,
           "new tokens fit the cache and the pass");
    for (int64_t i = 0; i < count; ++i, ++tokens) {
      const int32_t id = feed.ids[static_cast<size_t>(i)];
      ensure(id >= 0 && id < model_.vocab, "an id is below the size of the vocabulary");
      sequences[tokens] = static_cast<int32_t>(feed.sequence);
      positions[tokens] = static_cast<int32_t>(feed.position + i);
      ids[tokens] = id;
      if (embedding.tier() == Tier::host)
        std::memcpy(host_rows_.data() + tokens * row_bytes, table + id * row_bytes, static_cast<size_t>(row_bytes));
    }
    if (feed.logits) rows[(*wanted)++] = static_cast<int32_t>(tokens - 1);
  }
  return tokens;
}

std::span<const float> CachedForward::run(const std::vector<Feed>& feeds) {
  int64_t wanted = 0;
  const int64_t tokens = stage(feeds, &wanted);
  ensure(tokens > 0, "a pass has new tokens");
  std::vector<size_t> order;
  const size_t blocks = static_cast<size_t>(model_.layers);
  for (size_t range = 0; range < (wanted > 0 ? shape_.ranges.size() : blocks); ++range) order.push_back(range);
  weights_.begin_pass(std::move(order));

  Stream& stream = *compute_;
  stream.copy(inputs_.data(), host_inputs_.data(), static_cast<size_t>(shape_.input_bytes));
  const int32_t* inputs = reinterpret_cast<const int32_t*>(inputs_.data());
  const View x = matrix(x_.data(), shape_.dtype, tokens, model_.hidden);
  if (records_.front().tier() == Tier::host) {
    stream.copy(x.data, host_rows_.data(), static_cast<size_t>(x.bytes()));
  } else {
    ops_.embedding_forward(stream,
                           {.table = matrix(records_.front().weights(), shape_.dtype, model_.vocab, model_.hidden),
                            .index = inputs + 2 * shape_.tokens,
                            .out = x});
  }
  const NewTokens fresh{.tokens = tokens, .sequences = inputs, .positions = inputs + shape_.tokens};
  for (size_t block = 0; block < blocks; ++block) {
    block_.run(ops_, stream,
               {.block = static_cast<int64_t>(block),
                .weights = weights_.take(stream, block),
                .x = x,
                .tokens = fresh,
                .cache = cache_of(static_cast<int64_t>(block)),
                .workspace = workspace_.data()});
    weights_.done(stream, block);
  }
  if (wanted > 0) {
    const View logits = matrix(logits_.data(), DType::f32, wanted, model_.vocab);
    head_.norm(ops_, stream,
               {.norm = norm_.data(),
                .x = x,
                .index = inputs + 3 * shape_.tokens,
                .rows = wanted,
                .workspace = workspace_.data()});
    for (size_t piece = 0; piece + 1 < shape_.table_begin.size(); ++piece) {
      head_.logits(ops_, stream,
                   {.table = weights_.take(stream, blocks + piece),
                    .begin = shape_.table_begin[piece],
                    .count = shape_.table_begin[piece + 1] - shape_.table_begin[piece],
                    .rows = wanted,
                    .logits = logits,
                    .workspace = workspace_.data()});
      weights_.done(stream, blocks + piece);
    }
    stream.copy(host_logits_.data(), logits.data, static_cast<size_t>(logits.bytes()));
  }
  stream.synchronize();
  weights_.copies().check();
  return {reinterpret_cast<const float*>(host_logits_.data()), static_cast<size_t>(wanted * model_.vocab)};
}

}  // namespace megatrain
