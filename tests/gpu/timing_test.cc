// Prints what each op takes at the shapes of a 7B block: 8192 tokens, hidden 3584, ff 18944, 28 heads on 4, head 128.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/gpu/cuda_fixture.h"

namespace megatrain::testing {
namespace {

constexpr int64_t kTokens = 8192, kHidden = 3584, kFf = 18944, kHeads = 28, kKvHeads = 4, kHeadDim = 128,
                  kVocabulary = 152064;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim, kAttended = kHeads * kHeadDim;

class Bench {
 public:
  Bench() : from_(cuda_.device->make_event()), to_(cuda_.device->make_event()) {
    cuda_.harness.start(1);
    block_ = cuda_.harness.random(1 << 20, DType::f32, 0.5);
  }

  Harness& harness() { return cuda_.harness; }

  // Random values of one block, again and again.
  View tensor(DType dtype, int64_t rows, int64_t cols) {
    buffers_.push_back(cuda_.device->allocate(static_cast<size_t>(rows * cols * dtype_bytes(dtype)), "bench"));
    const Buffer& buffer = buffers_.back();
    std::vector<float> wide(block_.begin(), block_.end());
    std::vector<bf16> narrow(wide.size());
    std::transform(wide.begin(), wide.end(), narrow.begin(), to_bf16);
    const void* source = dtype == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
    const size_t bytes = wide.size() * static_cast<size_t>(dtype_bytes(dtype));
    for (size_t at = 0; at < buffer.bytes(); at += bytes) {
      cuda_.stream->copy(buffer.data() + at, source, std::min(bytes, buffer.bytes() - at));
    }
    cuda_.stream->synchronize();
    return matrix(buffer.data(), dtype, rows, cols);
  }
  template <class T>
  T* list(const std::vector<T>& values) {
    buffers_.push_back(cuda_.harness.upload(values));
    return pointer<T>(buffers_.back());
  }

  // Median of several runs; flops or bytes of one call, whichever bounds it.
  template <class Call>
  void row(const char* name, double flops, double bytes, const Call& call) {
    std::vector<double> seconds;
    for (int i = 0; i < 8; ++i) {
      cuda_.stream->record(*from_);
      call();
      cuda_.stream->record(*to_);
      to_->block();
      if (i >= 3) seconds.push_back(cuda_.device->elapsed_s(*from_, *to_));
    }
    std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
    const double s = seconds[2];
    std::printf("%-34s %9.3f ms %8.1f TFLOP/s %8.2f TB/s\n", name, s * 1e3, flops / s * 1e-12, bytes / s * 1e-12);
    EXPECT_GT(s, 0);
  }

 private:
  CudaFixture cuda_;
  std::unique_ptr<Event> from_, to_;
  Vector block_;
  std::vector<Buffer> buffers_;
};

void time_linear(Bench& bench, const char* name, int64_t in, int64_t out, bool bias) {
  Harness& h = bench.harness();
  const View x = bench.tensor(DType::bf16, kTokens, in), weight = bench.tensor(DType::bf16, out, in);
  const View y = bench.tensor(DType::bf16, kTokens, out), grad_x = bench.tensor(DType::bf16, kTokens, in);
  const View grad_weight = bench.tensor(DType::f32, out, in);
  const View b = bias ? bench.tensor(DType::bf16, 1, out) : View{},
             grad_b = bias ? bench.tensor(DType::f32, 1, out) : View{};
  const double flops = 2.0 * kTokens * static_cast<double>(in) * static_cast<double>(out);
  const double bytes = static_cast<double>(x.bytes() + weight.bytes() + y.bytes());
  const std::string text = name;
  bench.row((text + " forward").c_str(), flops, bytes,
            [&] { h.ops.linear_forward(h.stream, {.x = x, .weight = weight, .bias = b, .residual = {}, .out = y}); });
  bench.row((text + " grad x").c_str(), flops, bytes,
            [&] { h.ops.linear_backward_input(h.stream, {.grad_out = y, .weight = weight, .grad_x = grad_x}); });
  bench.row((text + " grad weight, added").c_str(), flops, bytes + 3.0 * static_cast<double>(weight.bytes()), [&] {
    h.ops.linear_backward_weight(
        h.stream, {.grad_out = y, .x = x, .grad_weight = grad_weight, .grad_bias = grad_b, .accumulate = true});
  });
}

void time_attention(Bench& bench, const char* name, const std::vector<int32_t>& sizes, int64_t window) {
  Harness& h = bench.harness();
  std::vector<int32_t> begin{0};
  double pairs = 0;
  for (const int32_t size : sizes) {
    begin.push_back(begin.back() + size);
    for (int64_t t = 0; t < size; ++t) pairs += static_cast<double>(window > 0 ? std::min(t + 1, window) : t + 1);
  }
  const auto [shortest, longest] = std::minmax_element(sizes.begin(), sizes.end());
  const Documents documents{bench.list(begin), begin.data(), static_cast<int64_t>(sizes.size()), *longest,
                            *shortest == *longest};
  const AttentionShape shape{kTokens, kHeads, kKvHeads, kHeadDim, window, 0.0883883461f};
  const View qkv = bench.tensor(DType::bf16, kTokens, kQkv), grad = bench.tensor(DType::bf16, kTokens, kQkv);
  const View out = bench.tensor(DType::bf16, kTokens, kAttended),
             grad_out = bench.tensor(DType::bf16, kTokens, kAttended);
  const View lse = bench.tensor(DType::f32, kHeads, kTokens);
  const auto part = [](const View& all, int i) {
    return i == 0 ? all.slice_cols(0, kAttended)
                  : all.slice_cols(kAttended + (i - 1) * kKvHeads * kHeadDim, kKvHeads * kHeadDim);
  };
  const int64_t scratch = h.ops.scratch_bytes({DType::bf16, shape, kHidden, kFf, documents.count, documents.longest});
  h.ops.reserve({DType::bf16, shape, kHidden, kFf, documents.count, documents.longest});
  std::printf("%s: scratch %.0f MiB\n", name, static_cast<double>(scratch) / (1 << 20));
  const double flops = 4.0 * pairs * kHeads * kHeadDim;
  const double bytes = static_cast<double>(qkv.bytes() + out.bytes());
  const std::string text = name;
  bench.row((text + " forward").c_str(), flops, bytes, [&] {
    h.ops.attention_forward(h.stream, {.shape = shape,
                                       .documents = documents,
                                       .q = part(qkv, 0),
                                       .k = part(qkv, 1),
                                       .v = part(qkv, 2),
                                       .out = out,
                                       .lse = lse.as<float>()});
  });
  bench.row((text + " backward").c_str(), 2.5 * flops, 3 * bytes, [&] {
    h.ops.attention_backward(h.stream, {.shape = shape,
                                        .documents = documents,
                                        .q = part(qkv, 0),
                                        .k = part(qkv, 1),
                                        .v = part(qkv, 2),
                                        .out = out,
                                        .lse = lse.as<float>(),
                                        .grad_out = grad_out,
                                        .grad_q = part(grad, 0),
                                        .grad_k = part(grad, 1),
                                        .grad_v = part(grad, 2)});
  });
}

// As packing leaves them: 50 to 1500 tokens each, the last cut short.
std::vector<int32_t> packed_documents() {
  std::vector<int32_t> documents;
  int64_t left = kTokens;
  for (uint64_t i = 0; left > 0; ++i) {
    const int64_t drawn = 50 + static_cast<int64_t>(random_below(1, 29, i, 1451));
    documents.push_back(static_cast<int32_t>(std::min(drawn, left)));
    left -= documents.back();
  }
  return documents;
}

TEST(CudaTiming, MatrixProducts) {
  Bench bench;
  time_linear(bench, "qkv", kHidden, kQkv, true);
  time_linear(bench, "out", kAttended, kHidden, false);
  time_linear(bench, "gate_up", kHidden, 2 * kFf, false);
  time_linear(bench, "down", kFf, kHidden, false);
}

TEST(CudaTiming, Attention) {
  Bench bench;
  time_attention(bench, "attention 8 x 1024", std::vector<int32_t>(8, 1024), 0);
  time_attention(bench, "attention 1 x 8192", {8192}, 0);
  time_attention(bench, "attention ragged", {1500, 700, 2000, 92, 900, 3000}, 0);
  time_attention(bench, "attention packed 50..1500", packed_documents(), 0);
  time_attention(bench, "attention 2 x 4096, window 1024", {4096, 4096}, 1024);
}

TEST(CudaTiming, RowsAndElements) {
  Bench bench;
  Harness& h = bench.harness();
  const View x = bench.tensor(DType::bf16, kTokens, kHidden), y = bench.tensor(DType::bf16, kTokens, kHidden);
  const View grad = bench.tensor(DType::bf16, kTokens, kHidden), weight = bench.tensor(DType::bf16, 1, kHidden);
  const View grad_weight = bench.tensor(DType::f32, 1, kHidden),
             inv_rms = bench.tensor(DType::f32, 1, kTokens * kHeads);
  const double row = static_cast<double>(x.bytes());
  bench.row("rmsnorm forward", 0, 2 * row, [&] {
    h.ops.rmsnorm_forward(h.stream, {.x = x, .weight = weight, .eps = 1e-6f, .out = y, .inv_rms = inv_rms.as<float>()});
  });
  bench.row("rmsnorm backward with residual", 0, 4 * row, [&] {
    h.ops.rmsnorm_backward(h.stream, {.x = x,
                                      .weight = weight,
                                      .inv_rms = inv_rms.as<float>(),
                                      .grad_out = y,
                                      .residual = grad,
                                      .grad_x = grad,
                                      .grad_weight = grad_weight,
                                      .accumulate = true});
  });

  const View qkv = bench.tensor(DType::bf16, kTokens, kQkv), head_weight = bench.tensor(DType::bf16, 1, kHeadDim);
  const View head_grad = bench.tensor(DType::f32, 1, kHeadDim),
             angles = bench.tensor(DType::f32, kTokens, kHeadDim / 2);
  std::vector<int32_t> positions(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % 1024);
  const int32_t* places = bench.list(positions);
  const View q = qkv.slice_cols(0, kAttended);
  bench.row("q norm forward", 0, 2.0 * kTokens * kAttended * 2, [&] {
    h.ops.rmsnorm_forward(
        h.stream,
        {.x = q, .weight = head_weight, .eps = 1e-6f, .groups = kHeads, .out = y, .inv_rms = inv_rms.as<float>()});
  });
  bench.row("q norm backward", 0, 3.0 * kTokens * kAttended * 2, [&] {
    h.ops.rmsnorm_backward(h.stream, {.x = q,
                                      .weight = head_weight,
                                      .inv_rms = inv_rms.as<float>(),
                                      .groups = kHeads,
                                      .grad_out = y,
                                      .residual = {},
                                      .grad_x = y,
                                      .grad_weight = head_grad,
                                      .accumulate = false});
  });
  bench.row("rope", 0, 2.0 * kTokens * (kHeads + kKvHeads) * kHeadDim * 2, [&] {
    h.ops.rope(h.stream, {.x = qkv.slice_cols(0, (kHeads + kKvHeads) * kHeadDim),
                          .heads = kHeads + kKvHeads,
                          .head_dim = kHeadDim,
                          .positions = places,
                          .cos = angles.as<float>(),
                          .sin = angles.as<float>(),
                          .backward = false});
  });

  const View gate_up = bench.tensor(DType::bf16, kTokens, 2 * kFf), act = bench.tensor(DType::bf16, kTokens, kFf);
  bench.row("swiglu forward", 0, 3.0 * static_cast<double>(act.bytes()),
            [&] { h.ops.swiglu_forward(h.stream, {.gate_up = gate_up, .out = act}); });
  bench.row("swiglu backward in place", 0, 5.0 * static_cast<double>(act.bytes()), [&] {
    h.ops.swiglu_backward(h.stream, {.gate_up = gate_up, .grad_out = act, .grad_gate_up = gate_up, .out = {}});
  });

  constexpr int64_t kChunk = 2048;
  const View logits = bench.tensor(DType::bf16, kChunk, kVocabulary), losses = bench.tensor(DType::f32, 1, kTokens);
  std::vector<int32_t> labels(kTokens);
  for (size_t t = 0; t < labels.size(); ++t) labels[t] = static_cast<int32_t>(t * 17 % kVocabulary);
  int32_t *labels_d = bench.list(labels), *correct = bench.list(labels);
  bench.row("cross entropy, 2048 tokens", 0, 3.0 * static_cast<double>(logits.bytes()), [&] {
    h.ops.cross_entropy(h.stream, {.logits = logits,
                                   .labels = labels_d,
                                   .scale = 1e-4f,
                                   .loss = losses.as<float>(),
                                   .correct = correct,
                                   .backward = true});
  });
}

TEST(CudaTiming, GradientsAndUpdates) {
  Bench bench;
  Harness& h = bench.harness();
  constexpr int64_t kCount = 233'057'792;  // elements of a 7B block, roughly
  const View grad = bench.tensor(DType::f32, 1, kCount), rounded = bench.tensor(DType::bf16, 1, kCount);
  const View m = bench.tensor(DType::f32, 1, kCount), v = bench.tensor(DType::f32, 1, kCount);
  const View weight = bench.tensor(DType::bf16, 1, kCount), low = bench.tensor(DType::bf16, 1, kCount);
  h.stream.zero(v.data, static_cast<size_t>(v.bytes()));
  double* sums = bench.list(std::vector<double>(kCount / kNormBlock + 2));
  int32_t* finite = bench.list(std::vector<int32_t>{1});
  const float* clip = bench.list(std::vector<float>{1});
  bench.row("finish gradient", 0, 6.0 * kCount, [&] {
    h.ops.finish_gradient(
        h.stream, {.grad = grad, .dtype = DType::bf16, .out = rounded, .partials = sums + 1, .sum_of_squares = sums});
  });
  bench.row("adamw, split master", 0, 28.0 * kCount, [&] {
    h.ops.adamw(h.stream, {.scalars = {.clip = 1,
                                       .beta2 = 0.999f,
                                       .one_minus_beta1 = 0.1f,
                                       .one_minus_beta2 = 0.001f,
                                       .inv_sqrt_bias2 = 1,
                                       .eps = 1e-8f,
                                       .step_size = 1e-5f,
                                       .decay = 1},
                           .count = kCount,
                           .grad = grad.as<float>(),
                           .m = m.as<float>(),
                           .v = v.as<float>(),
                           .weight = weight.as<bf16>(),
                           .low = low.as<uint16_t>(),
                           .clip = clip,
                           .finite = finite});
  });
  constexpr int64_t kRows = 6000;
  const View table = bench.tensor(DType::bf16, kRows, kHidden), grad_table = bench.tensor(DType::f32, kRows, kHidden);
  const View x = bench.tensor(DType::bf16, kTokens, kHidden);
  std::vector<int32_t> order(kTokens), begin, row;
  for (int64_t t = 0; t < kTokens; ++t) order[static_cast<size_t>(t)] = static_cast<int32_t>(t);
  // One word in eight tokens is the same: the longest segment bounds the op.
  for (int64_t r = 0; r < kRows; ++r) {
    begin.push_back(static_cast<int32_t>(r == 0 ? 0 : 1024 + (r - 1) * (kTokens - 1024) / (kRows - 1)));
    row.push_back(static_cast<int32_t>(r));
  }
  begin.push_back(kTokens);
  const int32_t *order_d = bench.list(order), *begin_d = bench.list(begin), *row_d = bench.list(row);
  std::vector<int32_t> index(kTokens);
  for (size_t t = 0; t < index.size(); ++t) index[t] = static_cast<int32_t>(t * 31 % kRows);
  const int32_t* index_d = bench.list(index);
  bench.row("embedding forward", 0, 2.0 * static_cast<double>(x.bytes()),
            [&] { h.ops.embedding_forward(h.stream, {.table = table, .index = index_d, .out = x}); });
  bench.row(
      "embedding backward", 0, static_cast<double>(x.bytes()) + 2.0 * static_cast<double>(grad_table.bytes()), [&] {
        h.ops.embedding_backward(
            h.stream,
            {.grad_out = x, .order = order_d, .begin = begin_d, .row = row_d, .segments = kRows, .grad = grad_table});
      });
}

}  // namespace
}  // namespace megatrain::testing
