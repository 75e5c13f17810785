#include "megatrain/ops/ssd.h"

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"
#include "megatrain/ops/cpu/ssd_chunk.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kSsdSegmentChunks = 16;  // backward keeps the state before each segment and recomputes those within

// What forward, backward and generation read.
struct SsdViews {
  View x, b, c, step, g, skip;
};

template <class Args>
SsdViews ssd_views(const Args& a) {
  return {a.x, a.b, a.c, a.step, a.g, a.skip};
}

void check_ssd(const SsdShape& shape, const SsdViews& views, const View& out) {
  ensure(shape.groups > 0 && shape.heads % shape.groups == 0, "heads share groups evenly");
  ensure(shape.head_dim <= kMostSsdDim && shape.state_dim <= kMostSsdDim, "a head and its state have at most 256 rows");
  for (const View* view : {&views.x, &views.b, &views.c, &views.skip, &out}) check_dtype(*view);
  ensure(views.step.dtype == DType::f32 && views.g.dtype == DType::f32, "steps and decays are fp32");
}

// The token rows of one chunk and one head as fp32.
class SsdRows {
 public:
  SsdRows(const SsdShape& shape, const SsdViews& views) : shape_(shape), views_(views) {
    x_.resize(static_cast<size_t>(kSsdChunk * shape.head_dim));
    for (std::vector<float>* rows : {&b_, &c_}) rows->resize(static_cast<size_t>(kSsdChunk * shape.state_dim));
  }

  // Tokens [first, first + count) of head `head`.
  SsdTokens<float> read_rows(int64_t first, int64_t count, int64_t head) {
    const int64_t width = shape_.head_dim, states = shape_.state_dim;
    const int64_t group_col = head / (shape_.heads / shape_.groups) * states;
    for (int64_t i = 0; i < count; ++i) {
      widen(views_.x, first + i, head * width, width, x_.data() + i * width);
      widen(views_.b, first + i, group_col, states, b_.data() + i * states);
      widen(views_.c, first + i, group_col, states, c_.data() + i * states);
      step_[i] = *element<float>(views_.step, first + i, head);
      g_[i] = *element<float>(views_.g, first + i, head);
    }
    float skip;
    widen(views_.skip, 0, head, 1, &skip);
    return {count, x_.data(), b_.data(), c_.data(), step_, g_, skip};
  }

 private:
  const SsdShape& shape_;
  SsdViews views_;
  std::vector<float> x_, b_, c_;
  float step_[kSsdChunk], g_[kSsdChunk];
};

// The backward of one group of one document: all its heads, segment by segment from the last.
class GroupBackward {
 public:
  // `grad_skip` (heads): of this document.
  GroupBackward(const Context& context, const SsdBackward& args, int64_t document, int64_t group, double* grad_skip)
      : args_(args),
        shape_(args.shape),
        begin_(args.documents.begin[document]),
        end_(args.documents.begin[document + 1]),
        chunks_(ceil_div(end_ - begin_, kSsdChunk)),
        group_(group),
        heads_(shape_.heads / shape_.groups),
        grad_skip_(grad_skip),
        rows_(shape_, ssd_views(args)),
        chunk_({context.matmul}, shape_.state_dim, shape_.head_dim),
        starts_(static_cast<size_t>(heads_ * segments() * state_size())),
        grad_state_(static_cast<size_t>(heads_ * state_size())),
        states_(static_cast<size_t>(kSsdSegmentChunks * state_size())),
        grad_b_(static_cast<size_t>(kSsdSegmentChunks * kSsdChunk * shape_.state_dim)),
        grad_c_(grad_b_.size()),
        grad_out_(static_cast<size_t>(kSsdChunk * shape_.head_dim)),
        grad_x_(grad_out_.size()) {}

  void run() {
    for (int64_t h = 0; h < heads_; ++h) keep_starts(h);
    for (int64_t segment = segments() - 1; segment >= 0; --segment) {
      std::fill(grad_b_.begin(), grad_b_.end(), 0.0f);
      std::fill(grad_c_.begin(), grad_c_.end(), 0.0f);
      for (int64_t h = 0; h < heads_; ++h) segment_backward(segment, h);
      write_group(segment);
    }
  }

 private:
  int64_t state_size() const { return shape_.state_dim * shape_.head_dim; }
  int64_t segments() const { return ceil_div(chunks_, kSsdSegmentChunks); }
  int64_t last_chunk(int64_t segment) const { return std::min(chunks_, (segment + 1) * kSsdSegmentChunks); }
  float* start_of(int64_t h, int64_t segment) { return starts_.data() + (h * segments() + segment) * state_size(); }
  SsdTokens<float> tokens_of(int64_t chunk, int64_t h) {
    const int64_t first = begin_ + chunk * kSsdChunk;
    return rows_.read_rows(first, std::min(kSsdChunk, end_ - first), group_ * heads_ + h);
  }

  // The states before each segment of head `h` of the group.
  void keep_starts(int64_t h) {
    std::vector<float> state(static_cast<size_t>(state_size()));
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      if (chunk % kSsdSegmentChunks == 0) std::copy(state.begin(), state.end(), start_of(h, chunk / kSsdSegmentChunks));
      chunk_.solve(tokens_of(chunk, h), state.data());
      chunk_.write_state(state.data());
    }
  }

  void segment_backward(int64_t segment, int64_t h) {
    const int64_t first = segment * kSsdSegmentChunks, last = last_chunk(segment);
    const auto state_before = [&](int64_t chunk) { return states_.data() + (chunk - first) * state_size(); };
    std::copy_n(start_of(h, segment), state_size(), state_before(first));
    for (int64_t chunk = first; chunk + 1 < last; ++chunk) {
      chunk_.solve(tokens_of(chunk, h), state_before(chunk));
      chunk_.write_state(state_before(chunk + 1));
    }
    for (int64_t chunk = last - 1; chunk >= first; --chunk) {
      chunk_.solve(tokens_of(chunk, h), state_before(chunk));
      chunk_backward(chunk, (chunk - first) * kSsdChunk, h);
    }
  }

  // `place`: the chunk's first token in the segment.
  void chunk_backward(int64_t chunk, int64_t place, int64_t h) {
    const int64_t width = shape_.head_dim, head = group_ * heads_ + h, row = begin_ + chunk * kSsdChunk;
    const int64_t count = std::min(kSsdChunk, end_ - row);
    float grad_step[kSsdChunk], grad_g[kSsdChunk];
    for (int64_t i = 0; i < count; ++i)
      widen(args_.grad_out, row + i, head * width, width, grad_out_.data() + i * width);
    chunk_.backward(grad_out_.data(), grad_state_.data() + h * state_size(),
                    {.x = grad_x_.data(),
                     .b = grad_b_.data() + place * shape_.state_dim,
                     .c = grad_c_.data() + place * shape_.state_dim,
                     .step = grad_step,
                     .g = grad_g,
                     .skip = grad_skip_ + head});
    for (int64_t i = 0; i < count; ++i) {
      narrow(grad_x_.data() + i * width, args_.grad_x, row + i, head * width, width);
      *element<float>(args_.grad_step, row + i, head) = grad_step[i];
      *element<float>(args_.grad_g, row + i, head) = grad_g[i];
    }
  }

  void write_group(int64_t segment) {
    const int64_t states = shape_.state_dim, first = begin_ + segment * kSsdSegmentChunks * kSsdChunk;
    const int64_t end = std::min(end_, begin_ + last_chunk(segment) * kSsdChunk);
    for (int64_t row = first; row < end; ++row) {
      narrow(grad_b_.data() + (row - first) * states, args_.grad_b, row, group_ * states, states);
      narrow(grad_c_.data() + (row - first) * states, args_.grad_c, row, group_ * states, states);
    }
  }

  const SsdBackward& args_;
  const SsdShape& shape_;
  int64_t begin_, end_, chunks_, group_, heads_;
  double* grad_skip_;
  SsdRows rows_;
  SsdChunk<ChunkMath> chunk_;
  std::vector<float> starts_;             // (heads, segments, N, P)
  std::vector<float> grad_state_;         // (heads, N, P) of the state behind the current segment
  std::vector<float> states_;             // (kSsdSegmentChunks, N, P) before the chunks of a segment
  std::vector<float> grad_b_, grad_c_;    // (kSsdSegmentChunks * kSsdChunk, N)
  std::vector<float> grad_out_, grad_x_;  // (kSsdChunk, P)
};

}  // namespace

void ssd_forward(const Context& context, const SsdForward& args) {
  const SsdShape& shape = args.shape;
  const SsdViews views = ssd_views(args);
  check_ssd(shape, views, args.out);
  const int64_t width = shape.head_dim;
  context.team.parallel_for(args.documents.count * shape.heads, [&](int64_t index) {
    const int64_t document = index / shape.heads, head = index % shape.heads;
    const int64_t end = args.documents.begin[document + 1];
    SsdRows rows(shape, views);
    SsdChunk<ChunkMath> chunk({context.matmul}, shape.state_dim, width);
    std::vector<float> state(static_cast<size_t>(shape.state_dim * width)), out(static_cast<size_t>(kSsdChunk * width));
    for (int64_t first = args.documents.begin[document]; first < end; first += kSsdChunk) {
      const int64_t count = std::min(kSsdChunk, end - first);
      chunk.solve(rows.read_rows(first, count, head), state.data());
      chunk.write_out(out.data());
      chunk.write_state(state.data());
      for (int64_t i = 0; i < count; ++i) narrow(out.data() + i * width, args.out, first + i, head * width, width);
    }
  });
}

void ssd_backward(const Context& context, const SsdBackward& args) {
  const SsdShape& shape = args.shape;
  check_ssd(shape, ssd_views(args), args.grad_out);
  for (const View* view : {&args.grad_x, &args.grad_b, &args.grad_c}) check_dtype(*view);
  ensure(args.grad_step.dtype == DType::f32 && args.grad_g.dtype == DType::f32, "gradients of steps are fp32");
  const int64_t documents = args.documents.count;
  std::vector<double> grad_skip(static_cast<size_t>(documents * shape.heads));
  context.team.parallel_for(documents * shape.groups, [&](int64_t index) {
    const int64_t document = index / shape.groups;
    GroupBackward(context, args, document, index % shape.groups, grad_skip.data() + document * shape.heads).run();
  });
  if (args.grad_skip.empty()) return;
  for (int64_t head = 0; head < shape.heads; ++head) {
    float& grad = args.grad_skip.as<float>()[head];
    double sum = args.accumulate ? grad : 0;
    for (int64_t d = 0; d < documents; ++d) sum += grad_skip[static_cast<size_t>(d * shape.heads + head)];
    grad = static_cast<float>(sum);
  }
}

void ssd_cached(const Context& context, const SsdCached& args) {
  const SsdShape& shape = args.shape;
  const SsdViews views = ssd_views(args);
  check_ssd(shape, views, args.out);
  ensure(args.state.dtype == DType::f32 && args.state.contiguous(), "states are contiguous fp32");
  const int64_t width = shape.head_dim, size = shape.state_dim * width;
  context.team.parallel_for(shape.heads, [&](int64_t head) {
    SsdRows rows(shape, views);
    std::vector<float> out(static_cast<size_t>(width));
    for (int64_t t = 0; t < shape.tokens; ++t) {
      float* state = args.state.as<float>() + (args.sequences[t] * shape.heads + head) * size;
      if (args.positions[t] == 0) std::fill(state, state + size, 0.0f);
      ssd_step(rows.read_rows(t, 1, head), shape.state_dim, width, state, out.data());
      narrow(out.data(), args.out, t, head * width, width);
    }
  });
}

}  // namespace megatrain::cpu
