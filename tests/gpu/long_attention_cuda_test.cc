// Attention over long documents on the GPU: the error of tiles and pieces against an fp32 reference, and offsets beyond
// 2^31.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "megatrain/ops/attention_cut.h"
#include "tests/gpu/cuda_fixture.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/run_cases.h"

namespace megatrain::testing {
namespace {

// For each tensor, the RMS of the differences over the RMS of the values.
std::map<std::string, double> errors_of(const OpRun& run, const OpRun& exact) {
  std::map<std::string, double> errors;
  for (const auto& [name, values] : exact.out) {
    double differences = 0, squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      differences += std::pow(run.out.at(name)[i] - values[i], 2);
      squares += values[i] * values[i];
    }
    errors[name] = std::sqrt(differences / squares);
  }
  return errors;
}

// The reference is the CPU's fp32 attention, which sums in fp64, on the same bf16 values. A document of one tile shows
// the error of bf16 alone; cutting may add at most half as much again. docs/numerics.md has the printed figures.
TEST(CudaLongAttention, CutsCostLessThanBf16Does) {
  CudaFixture cuda;
  CpuFixture cpu({});
  const auto errors = [&](int32_t tokens, int64_t window) {
    const AttentionCase c{DType::bf16, {tokens}, 1, 1, 64, window};
    const OpRun ran = run(cuda.harness, c, 3);
    AttentionCase exact = c;
    exact.dtype = DType::f32;
    const std::map<std::string, double> found = errors_of(ran, run(cpu.harness, exact, 3, ran.in));
    for (const auto& [name, error] : found)
      std::printf("attention over %d tokens, window %lld: %s %.2e\n", tokens, static_cast<long long>(window),
                  name.c_str(), error);
    return found;
  };
  for (const int64_t window : {0, 1000}) {
    const auto whole = errors(16384, window), cut = errors(24000, window);
    for (const auto& [name, error] : cut) {
      EXPECT_LT(error, 4e-3) << name;
      EXPECT_LT(error, 1.5 * whole.at(name)) << name << " in a window of " << window;
    }
  }
}

// A document whose forward runs over several tiles, the last of them short. Compares rows of the output with fp64, and
// of the gradient of q, which needs the merged log-sum-exps.
TEST(CudaLongAttention, TilesOfTheForwardMergeIntoTheWholeSoftmax) {
  CudaFixture cuda;
  constexpr int64_t kDim = 32;
  constexpr int32_t kTokens = 70000;
  static_assert(kTokens > kForwardTiles * kAttentionTile);
  const AttentionCase c{DType::bf16, {kTokens}, 2, 1, kDim, 0};
  const OpRun ran = run(cuda.harness, c, 3);
  const Vector &q = ran.in.at("q"), &k = ran.in.at("k"), &v = ran.in.at("v"), &grad_out = ran.in.at("grad_out");
  const double scale = 1 / std::sqrt(static_cast<double>(kDim));
  std::map<std::string, std::pair<double, double>> sums;  // of squared differences, and of squares
  const auto compare = [&](const std::string& name, size_t at, double exact) {
    sums[name].first += std::pow(ran.out.at(name)[at] - exact, 2);
    sums[name].second += exact * exact;
  };
  for (int64_t row = 0; row < kTokens; row += 997) {
    for (int64_t head = 0; head < 2; ++head) {
      const size_t at = static_cast<size_t>((row * 2 + head) * kDim);
      const auto dot = [&](const Vector& a, size_t a_at, const Vector& b, int64_t key) {
        double sum = 0;
        for (size_t d = 0; d < kDim; ++d) sum += a[a_at + d] * b[static_cast<size_t>(key * kDim) + d];
        return sum;
      };
      std::vector<double> p(static_cast<size_t>(row) + 1);
      double total = 0, mean = 0;
      for (int64_t key = 0; key <= row; ++key)
        total += p[static_cast<size_t>(key)] = std::exp(scale * dot(q, at, k, key));
      for (int64_t key = 0; key <= row; ++key)
        mean += (p[static_cast<size_t>(key)] /= total) * dot(grad_out, at, v, key);
      for (size_t d = 0; d < kDim; ++d) {
        double out = 0, grad = 0;
        for (int64_t key = 0; key <= row; ++key) {
          const size_t of_key = static_cast<size_t>(key * kDim);
          out += p[static_cast<size_t>(key)] * v[of_key + d];
          if (d < 4) grad += p[static_cast<size_t>(key)] * (dot(grad_out, at, v, key) - mean) * scale * k[of_key + d];
        }
        compare("out", at + d, out);
        if (d < 4) compare("grad_q", at + d, grad);
      }
    }
  }
  for (const auto& [name, sum] : sums) {
    const double error = std::sqrt(sum.first / sum.second);
    std::printf("attention over %d tokens, forward in tiles: %s %.2e\n", kTokens, name.c_str(), error);
    EXPECT_LT(error, 4e-3) << name;
  }
}

// q, k and v are strided as in a model, 4608 elements per token, so the last tokens are beyond 2^31 elements. The bits
// must equal those with a compact layout.
TEST(CudaLongAttention, ReachesTokensBeyondTwoToThe31Elements) {
  CudaFixture cuda;
  Harness& h = cuda.harness;
  constexpr int64_t kTokens = 470000, kDim = 32, kClose = 3 * kDim, kWide = 4608;
  static_assert(kTokens * kWide > int64_t{1} << 31);
  h.start(5);
  const auto upload = [&](int64_t columns) {
    const Vector values = h.random(kTokens * columns, DType::bf16);
    std::vector<bf16> stored(values.size());
    std::transform(values.begin(), values.end(), stored.begin(),
                   [](double value) { return to_bf16(static_cast<float>(value)); });
    return h.upload(stored);
  };
  const Buffer close = upload(kClose), grad_out = upload(kDim);
  const std::vector<int32_t> begin{0, kTokens};
  const Buffer begin_d = h.upload(begin);
  const Documents documents{pointer<int32_t>(begin_d), begin.data(), 1, kTokens, true};
  const auto copy_rows = [&](std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride) {
    for (int64_t row = 0; row < kTokens; ++row)
      h.stream.copy(to + row * to_stride * 2, from + row * from_stride * 2, kClose * 2);
    h.stream.synchronize();
  };
  for (const int64_t window : {0, 128}) {
    const AttentionShape shape{kTokens, 1, 1, kDim, window, 0.17f};
    // out, then the gradients of q, k and v
    const auto results = [&](const Buffer& qkv, int64_t stride) {
      const Buffer grad = h.device.allocate(kTokens * stride * 2, "test"), lse = h.device.allocate(kTokens * 4, "test"),
                   out = h.device.allocate(kTokens * kDim * 2, "test"),
                   packed = h.device.allocate(kTokens * kClose * 2, "test");
      const auto part = [&](const Buffer& buffer, int64_t index) {
        return View{buffer.data() + index * kDim * 2, DType::bf16, kTokens, kDim, stride};
      };
      const View out_view = matrix(out.data(), DType::bf16, kTokens, kDim),
                 grad_out_view = matrix(grad_out.data(), DType::bf16, kTokens, kDim);
      h.ops.attention_forward(h.stream, {.shape = shape,
                                         .documents = documents,
                                         .q = part(qkv, 0),
                                         .k = part(qkv, 1),
                                         .v = part(qkv, 2),
                                         .out = out_view,
                                         .lse = pointer<float>(lse)});
      h.ops.attention_backward(h.stream, {.shape = shape,
                                          .documents = documents,
                                          .q = part(qkv, 0),
                                          .k = part(qkv, 1),
                                          .v = part(qkv, 2),
                                          .out = out_view,
                                          .lse = pointer<float>(lse),
                                          .grad_out = grad_out_view,
                                          .grad_q = part(grad, 0),
                                          .grad_k = part(grad, 1),
                                          .grad_v = part(grad, 2)});
      copy_rows(packed.data(), kClose, grad.data(), stride);
      return std::pair(h.download_as<uint16_t>(out, kTokens * kDim), h.download_as<uint16_t>(packed, kTokens * kClose));
    };
    const auto wanted = results(close, kClose);
    const Buffer wide = h.device.allocate(kTokens * kWide * 2, "test");
    copy_rows(wide.data(), kWide, close.data(), kClose);
    const auto got = results(wide, kWide);
    EXPECT_TRUE(got.first == wanted.first) << "outputs, window " << window;
    EXPECT_TRUE(got.second == wanted.second) << "gradients, window " << window;
    const auto zeros = std::count(got.second.end() - kClose * 100, got.second.end(), 0);
    EXPECT_LT(zeros, kClose) << "the last tokens have gradients";
  }
}

}  // namespace
}  // namespace megatrain::testing
