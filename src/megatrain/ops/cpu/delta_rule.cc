#include "megatrain/ops/delta_rule.h"

#include <cmath>

#include "megatrain/ops/cpu/delta_chunk.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kSegmentChunks = 16;  // backward keeps the state before each segment and recomputes those within

// What forward, backward and generation read.
struct DeltaViews {
  View q, k, v, g, beta;
};

void check_delta(const DeltaRuleShape& shape, const DeltaViews& views, const View& out) {
  ensure(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0, "value heads share key heads evenly");
  ensure(shape.key_dim <= kMostDeltaDim && shape.value_dim <= kMostDeltaDim, "a delta head has at most 256 elements");
  for (const View* view : {&views.q, &views.k, &views.v, &out}) check_dtype(*view);
  ensure(views.g.dtype == DType::f32 && views.beta.dtype == DType::f32, "gates are fp32");
}

// The token rows of one chunk and one value head as fp32.
class ChunkRows {
 public:
  ChunkRows(const DeltaRuleShape& shape, const DeltaViews& views) : shape_(shape), views_(views) {
    for (std::vector<float>* keys : {&q_, &k_}) keys->resize(static_cast<size_t>(kDeltaChunk * shape.key_dim));
    v_.resize(static_cast<size_t>(kDeltaChunk * shape.value_dim));
  }

  // Tokens [first, first + count) of value head `head`.
  DeltaTokens<float> read_rows(int64_t first, int64_t count, int64_t head) {
    const int64_t dk = shape_.key_dim, dv = shape_.value_dim;
    const int64_t key_col = head / (shape_.value_heads / shape_.key_heads) * dk;
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dk)));
    for (int64_t i = 0; i < count; ++i) {
      normalised(views_.q, first + i, key_col, scale, q_.data() + i * dk);
      normalised(views_.k, first + i, key_col, 1.0f, k_.data() + i * dk);
      widen(views_.v, first + i, head * dv, dv, v_.data() + i * dv);
      g_[i] = *element<float>(views_.g, first + i, head);
      beta_[i] = *element<float>(views_.beta, first + i, head);
    }
    return {count, q_.data(), k_.data(), v_.data(), g_, beta_};
  }

 private:
  void normalised(const View& view, int64_t row, int64_t col, float scale, float* to) const {
    widen(view, row, col, shape_.key_dim, to);
    const double squares = sum_of(shape_.key_dim, [&](int64_t i) { return static_cast<double>(to[i]) * to[i]; });
    const float factor = static_cast<float>(1.0 / std::sqrt(squares + static_cast<double>(kDeltaNormEpsilon))) * scale;
    for (int64_t i = 0; i < shape_.key_dim; ++i) to[i] *= factor;
  }

  const DeltaRuleShape& shape_;
  DeltaViews views_;
  std::vector<float> q_, k_, v_;
  float g_[kDeltaChunk], beta_[kDeltaChunk];
};

// From the gradient of factor * x, where factor = scale / sqrt(sum x^2 + epsilon), to that of x.
void narrow_norm_gradient(const View& x, int64_t row, int64_t col, int64_t size, float scale, const float* grad,
                          const View& to) {
  float x_buffer[kMostDeltaDim], out[kMostDeltaDim];
  const float* values = read(x, row, col, size, x_buffer);
  const double squares = sum_of(size, [&](int64_t i) { return static_cast<double>(values[i]) * values[i]; });
  const double dot = sum_of(size, [&](int64_t i) { return static_cast<double>(values[i]) * grad[i]; });
  const double inverse = 1.0 / std::sqrt(squares + static_cast<double>(kDeltaNormEpsilon));
  const float factor = static_cast<float>(inverse) * scale;
  const float along = static_cast<float>(inverse * inverse * dot);
  for (int64_t i = 0; i < size; ++i) out[i] = factor * (grad[i] - values[i] * along);
  narrow(out, to, row, col, size);
}

// The backward of one key head of one document: all its value heads, segment by segment from the last.
class KeyHeadBackward {
 public:
  KeyHeadBackward(const Context& context, const DeltaRuleBackward& args, int64_t document, int64_t key_head)
      : args_(args),
        shape_(args.shape),
        begin_(args.documents.begin[document]),
        chunks_(ceil_div(args.documents.begin[document + 1] - begin_, kDeltaChunk)),
        end_(args.documents.begin[document + 1]),
        key_head_(key_head),
        group_(shape_.value_heads / shape_.key_heads),
        rows_(shape_, {args.q, args.k, args.v, args.g, args.beta}),
        chunk_({context.matmul}, shape_.key_dim, shape_.value_dim),
        starts_(static_cast<size_t>(group_ * ceil_div(chunks_, kSegmentChunks) * state_size())),
        grad_state_(static_cast<size_t>(group_ * state_size())),
        states_(static_cast<size_t>(kSegmentChunks * state_size())),
        grad_q_(static_cast<size_t>(kSegmentChunks * kDeltaChunk * shape_.key_dim)),
        grad_k_(grad_q_.size()) {}

  void run() {
    for (int64_t h = 0; h < group_; ++h) keep_starts(h);
    for (int64_t segment = ceil_div(chunks_, kSegmentChunks) - 1; segment >= 0; --segment) {
      std::fill(grad_q_.begin(), grad_q_.end(), 0.0f);
      std::fill(grad_k_.begin(), grad_k_.end(), 0.0f);
      for (int64_t h = 0; h < group_; ++h) segment_backward(segment, h);
      write_keys(segment);
    }
  }

 private:
  int64_t state_size() const { return shape_.key_dim * shape_.value_dim; }
  int64_t last_chunk(int64_t segment) const { return std::min(chunks_, (segment + 1) * kSegmentChunks); }
  float* start_of(int64_t h, int64_t segment) {
    return starts_.data() + (h * ceil_div(chunks_, kSegmentChunks) + segment) * state_size();
  }
  DeltaTokens<float> tokens_of(int64_t chunk, int64_t h) {
    const int64_t first = begin_ + chunk * kDeltaChunk;
    return rows_.read_rows(first, std::min(kDeltaChunk, end_ - first), key_head_ * group_ + h);
  }

  // The states before each segment of value head `h` of the group.
  void keep_starts(int64_t h) {
    std::vector<float> state(static_cast<size_t>(state_size()));
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      if (chunk % kSegmentChunks == 0) std::copy(state.begin(), state.end(), start_of(h, chunk / kSegmentChunks));
      chunk_.solve(tokens_of(chunk, h), state.data());
      chunk_.write_state(state.data());
    }
  }

  void segment_backward(int64_t segment, int64_t h) {
    const int64_t first = segment * kSegmentChunks, last = last_chunk(segment);
    const auto state_before = [&](int64_t chunk) { return states_.data() + (chunk - first) * state_size(); };
    std::copy_n(start_of(h, segment), state_size(), state_before(first));
    for (int64_t chunk = first; chunk + 1 < last; ++chunk) {
      chunk_.solve(tokens_of(chunk, h), state_before(chunk));
      chunk_.write_state(state_before(chunk + 1));
    }
    for (int64_t chunk = last - 1; chunk >= first; --chunk) {
      chunk_.solve(tokens_of(chunk, h), state_before(chunk));
      chunk_backward(chunk, (chunk - first) * kDeltaChunk, h);
    }
  }

  // `place`: the chunk's first token in the segment.
  void chunk_backward(int64_t chunk, int64_t place, int64_t h) {
    const int64_t dv = shape_.value_dim, head = key_head_ * group_ + h, row = begin_ + chunk * kDeltaChunk;
    const int64_t count = std::min(kDeltaChunk, end_ - row);
    grad_out_.resize(static_cast<size_t>(kDeltaChunk * dv));
    grad_v_.resize(grad_out_.size());
    for (int64_t i = 0; i < count; ++i) widen(args_.grad_out, row + i, head * dv, dv, grad_out_.data() + i * dv);
    float grad_g[kDeltaChunk], grad_beta[kDeltaChunk];
    chunk_.backward(grad_out_.data(), grad_state_.data() + h * state_size(),
                    {.q = grad_q_.data() + place * shape_.key_dim,
                     .k = grad_k_.data() + place * shape_.key_dim,
                     .v = grad_v_.data(),
                     .g = grad_g,
                     .beta = grad_beta});
    for (int64_t i = 0; i < count; ++i) {
      narrow(grad_v_.data() + i * dv, args_.grad_v, row + i, head * dv, dv);
      *element<float>(args_.grad_g, row + i, head) = grad_g[i];
      *element<float>(args_.grad_beta, row + i, head) = grad_beta[i];
    }
  }

  void write_keys(int64_t segment) {
    const int64_t dk = shape_.key_dim, first = begin_ + segment * kSegmentChunks * kDeltaChunk;
    const int64_t end = std::min(end_, begin_ + last_chunk(segment) * kDeltaChunk);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dk)));
    for (int64_t row = first; row < end; ++row) {
      const int64_t place = (row - first) * dk, col = key_head_ * dk;
      narrow_norm_gradient(args_.q, row, col, dk, scale, grad_q_.data() + place, args_.grad_q);
      narrow_norm_gradient(args_.k, row, col, dk, 1.0f, grad_k_.data() + place, args_.grad_k);
    }
  }

  const DeltaRuleBackward& args_;
  const DeltaRuleShape& shape_;
  int64_t begin_, chunks_, end_, key_head_, group_;
  ChunkRows rows_;
  DeltaChunk<ChunkMath> chunk_;
  std::vector<float> starts_;             // (group, segments, dk, dv)
  std::vector<float> grad_state_;         // (group, dk, dv) of the state behind the current segment
  std::vector<float> states_;             // (kSegmentChunks, dk, dv) before the chunks of a segment
  std::vector<float> grad_q_, grad_k_;    // (kSegmentChunks * kDeltaChunk, dk)
  std::vector<float> grad_out_, grad_v_;  // (kDeltaChunk, dv)
};

}  // namespace

void delta_rule_forward(const Context& context, const DeltaRuleForward& args) {
  const DeltaRuleShape& shape = args.shape;
  const DeltaViews views{args.q, args.k, args.v, args.g, args.beta};
  check_delta(shape, views, args.out);
  const int64_t dv = shape.value_dim;
  context.team.parallel_for(args.documents.count * shape.value_heads, [&](int64_t index) {
    const int64_t document = index / shape.value_heads, head = index % shape.value_heads;
    const int64_t end = args.documents.begin[document + 1];
    ChunkRows rows(shape, views);
    DeltaChunk<ChunkMath> chunk({context.matmul}, shape.key_dim, dv);
    std::vector<float> state(static_cast<size_t>(shape.key_dim * dv)), out(static_cast<size_t>(kDeltaChunk * dv));
    for (int64_t first = args.documents.begin[document]; first < end; first += kDeltaChunk) {
      const int64_t count = std::min(kDeltaChunk, end - first);
      chunk.solve(rows.read_rows(first, count, head), state.data());
      chunk.write_out(out.data());
      chunk.write_state(state.data());
      for (int64_t i = 0; i < count; ++i) narrow(out.data() + i * dv, args.out, first + i, head * dv, dv);
    }
  });
}

void delta_rule_backward(const Context& context, const DeltaRuleBackward& args) {
  check_delta(args.shape, {args.q, args.k, args.v, args.g, args.beta}, args.grad_out);
  for (const View* view : {&args.grad_q, &args.grad_k, &args.grad_v}) check_dtype(*view);
  ensure(args.grad_g.dtype == DType::f32 && args.grad_beta.dtype == DType::f32, "gradients of gates are fp32");
  context.team.parallel_for(args.documents.count * args.shape.key_heads, [&](int64_t index) {
    KeyHeadBackward(context, args, index / args.shape.key_heads, index % args.shape.key_heads).run();
  });
}

void delta_rule_cached(const Context& context, const DeltaRuleCached& args) {
  const DeltaRuleShape& shape = args.shape;
  const DeltaViews views{args.q, args.k, args.v, args.g, args.beta};
  check_delta(shape, views, args.out);
  ensure(args.state.dtype == DType::f32 && args.state.contiguous(), "states are contiguous fp32");
  const int64_t dk = shape.key_dim, dv = shape.value_dim;
  context.team.parallel_for(shape.value_heads, [&](int64_t head) {
    ChunkRows rows(shape, views);
    std::vector<float> out(static_cast<size_t>(dv)), scratch(static_cast<size_t>(dv));
    for (int64_t t = 0; t < shape.tokens; ++t) {
      float* state = args.state.as<float>() + (args.sequences[t] * shape.value_heads + head) * dk * dv;
      if (args.positions[t] == 0) std::fill(state, state + dk * dv, 0.0f);
      delta_step(rows.read_rows(t, 1, head), dk, dv, state, out.data(), scratch.data());
      narrow(out.data(), args.out, t, head * dv, dv);
    }
  });
}

}  // namespace megatrain::cpu
