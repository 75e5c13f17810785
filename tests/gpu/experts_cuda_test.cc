// CUDA's MoE ops compared with exact sums and with themselves. ops_cuda_test.cc has the cases shared with the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/gpu/cuda_fixture.h"
#include "tests/ops/run_expert_cases.h"

namespace megatrain::testing {
namespace {

// An integer from -3 to 3: sums of thousands of products of two are exact in fp32 in any order.
int whole_number(uint64_t purpose, int64_t index) {
  uint64_t z = (purpose << 40) + static_cast<uint64_t>(index) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<int>((z ^ (z >> 31)) % 7) - 3;
}

std::vector<bf16> whole_numbers(uint64_t purpose, int64_t count) {
  std::vector<bf16> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = to_bf16(static_cast<float>(whole_number(purpose, i)));
  return values;
}

std::vector<int32_t> begin_of(const std::vector<int32_t>& rows, int32_t before) {
  std::vector<int32_t> begin{before};
  for (const int32_t count : rows) begin.push_back(begin.back() + count);
  return begin;
}

// 4096 rows for 32 experts, some of which have none.
std::vector<int32_t> skewed_rows() {
  std::vector<int32_t> rows{1500, 700, 400, 256, 255, 257, 128, 127, 129, 64, 1, 0, 0, 33, 8};
  rows.resize(32, 14);
  return rows;
}

// The up projection of gpt-oss-20b. The experts' weights overlap in memory, a few elements apart, since they are only
// read.
TEST(CudaExperts, ProductsOfRealSizesAreExact) {
  constexpr int64_t kIn = 2880, kOut = 5760, kStride = 64;
  enum : uint64_t { kX = 1, kWeight, kBias, kGrad };
  CudaFixture cuda;
  Harness& h = cuda.harness;
  h.ops.reserve({.generating = true});
  const auto scratch = [&] { return cuda.device->ledger().by_tag().at("ops scratch"); };
  const int64_t reserved = scratch();
  const std::vector<int32_t> rows = skewed_rows(), begin = begin_of(rows, 100);
  const auto experts = static_cast<int64_t>(rows.size());
  const int64_t count = begin.back() - begin.front();
  ASSERT_EQ(count, 4096);

  const Buffer begin_d = h.upload(begin), x_d = h.upload(whole_numbers(kX, count * kIn)),
               weight_d = h.upload(whole_numbers(kWeight, kOut * kIn + experts * kStride)),
               bias_d = h.upload(whole_numbers(kBias, experts * kOut)),
               grad_out_d = h.upload(whole_numbers(kGrad, count * kOut));
  const ExpertRows given{.begin = pointer<int32_t>(begin_d), .experts = experts, .most = count, .expected = count};
  const View x = matrix(x_d.data(), DType::bf16, count, kIn),
             grad_out = matrix(grad_out_d.data(), DType::bf16, count, kOut);
  const ExpertWeights weight{matrix(weight_d.data(), DType::bf16, kOut, kIn), kStride};
  const ExpertWeights bias{vector(bias_d.data(), DType::bf16, kOut), kOut};
  const Tensor out = h.poisoned(DType::bf16, count, kOut), grad_x = h.poisoned(DType::bf16, count, kIn);
  const Buffer grad_weight_d = h.device.allocate(static_cast<size_t>(experts * kOut * kIn) * sizeof(float), "test");
  const Tensor grad_bias = h.poisoned(DType::f32, experts, kOut);
  h.ops.experts_forward(h.stream, {.rows = given, .x = x, .weight = weight, .bias = bias, .out = out.view});
  h.ops.experts_backward_input(h.stream,
                               {.rows = given, .grad_out = grad_out, .weight = weight, .grad_x = grad_x.view});
  for (const bool accumulate : {false, true}) {
    h.ops.experts_backward_weight(h.stream,
                                  {.rows = given,
                                   .grad_out = grad_out,
                                   .x = x,
                                   .grad_weight = {matrix(grad_weight_d.data(), DType::f32, kOut, kIn), kOut * kIn},
                                   .grad_bias = {vector(grad_bias.view.data, DType::f32, kOut), kOut},
                                   .accumulate = accumulate});
  }
  const std::vector<bf16> out_h = h.download_as<bf16>(out.buffer, count * kOut),
                          grad_x_h = h.download_as<bf16>(grad_x.buffer, count * kIn);
  const std::vector<float> grad_bias_h = h.download_as<float>(grad_bias.buffer, experts * kOut);
  EXPECT_EQ(scratch(), reserved);

  const auto x_at = [&](int64_t row, int64_t k) { return whole_number(kX, row * kIn + k); };
  const auto grad_at = [&](int64_t row, int64_t n) { return whole_number(kGrad, row * kOut + n); };
  const auto weight_at = [&](int64_t expert, int64_t n, int64_t k) {
    return whole_number(kWeight, expert * kStride + n * kIn + k);
  };
  const auto rounded = [](int64_t sum) { return to_float(to_bf16(static_cast<float>(sum))); };
  for (int64_t expert = 0; expert < experts; ++expert) {
    SCOPED_TRACE("expert " + std::to_string(expert));
    const int64_t first = begin[static_cast<size_t>(expert)] - begin[0], size = rows[static_cast<size_t>(expert)];
    for (uint64_t i = 0; i < 12; ++i) {
      // The corners, then positions between them.
      const auto place = [&](uint64_t purpose, uint64_t corner, int64_t sizes) {
        if (i < 4) return corner ? sizes - 1 : int64_t{0};
        return static_cast<int64_t>(
            random_below(5, purpose, static_cast<uint64_t>(expert) * 100 + i, static_cast<uint64_t>(sizes)));
      };
      const int64_t n = place(1, i & 1, kOut), k = place(2, i & 2, kIn);
      int64_t sum = 0;
      for (int64_t r = first; r < first + size; ++r) sum += grad_at(r, n) * x_at(r, k);
      float got = 0;
      h.stream.copy(&got, grad_weight_d.data() + (expert * kOut * kIn + n * kIn + k) * 4, sizeof(got));
      h.stream.synchronize();
      ASSERT_EQ(got, static_cast<float>(2 * sum)) << "gradient of weight " << n << ", " << k;
      sum = 0;
      for (int64_t r = first; r < first + size; ++r) sum += grad_at(r, n);
      ASSERT_EQ(grad_bias_h[static_cast<size_t>(expert * kOut + n)], static_cast<float>(2 * sum)) << "bias " << n;
      if (size == 0) continue;
      const int64_t row = first + place(3, i & 2, size);
      sum = whole_number(kBias, expert * kOut + n);
      for (int64_t j = 0; j < kIn; ++j) sum += x_at(row, j) * weight_at(expert, n, j);
      ASSERT_EQ(to_float(out_h[static_cast<size_t>(row * kOut + n)]), rounded(sum)) << "row " << row << ", " << n;
      sum = 0;
      for (int64_t j = 0; j < kOut; ++j) sum += grad_at(row, j) * weight_at(expert, j, k);
      ASSERT_EQ(to_float(grad_x_h[static_cast<size_t>(row * kIn + k)]), rounded(sum)) << "row " << row << ", " << k;
    }
  }
}

struct GroupedCase {
  DType dtype;
  int64_t in, out;
};

// Every matmul of 8 experts, `group` of them at a time.
Values run_in_groups(Harness& h, const GroupedCase& c, int64_t group) {
  const std::vector<int32_t> rows{40, 0, 300, 1, 130, 65, 2, 128}, begin = begin_of(rows, 7);
  const auto experts = static_cast<int64_t>(rows.size());
  const int64_t count = begin.back() - begin.front();
  h.start(21);
  const Tensor x = h.filled(c.dtype, count, c.in, h.random(count * c.in, c.dtype));
  const Tensor weight = h.filled(c.dtype, experts * c.out, c.in, h.random(experts * c.out * c.in, c.dtype));
  const Tensor bias = h.filled(c.dtype, experts, c.out, h.random(experts * c.out, c.dtype));
  const Tensor grad_out = h.filled(c.dtype, count, c.out, h.random(count * c.out, c.dtype));
  const Tensor out = h.poisoned(c.dtype, count, c.out), grad_x = h.poisoned(c.dtype, count, c.in);
  const Tensor grad_weight = h.poisoned(DType::f32, experts * c.out, c.in);
  const Tensor grad_bias = h.poisoned(DType::f32, experts, c.out);
  const Buffer begin_d = h.upload(begin);
  for (int64_t first = 0; first < experts; first += group) {
    const int64_t row = begin[static_cast<size_t>(first)] - begin[0];
    const ExpertRows given{.begin = pointer<int32_t>(begin_d) + first,
                           .experts = std::min(group, experts - first),
                           .most = count - row,
                           .expected = count * group / experts};
    const auto of_group = [&](const Tensor& tensor) { return tensor.view.slice_rows(row, count - row); };
    const auto matrix_of = [&](const Tensor& tensor) {
      return ExpertWeights{tensor.view.slice_rows(first * c.out, c.out), c.out * c.in};
    };
    const auto row_of = [&](const Tensor& tensor) { return ExpertWeights{tensor.view.slice_rows(first, 1), c.out}; };
    h.ops.experts_forward(
        h.stream,
        {.rows = given, .x = of_group(x), .weight = matrix_of(weight), .bias = row_of(bias), .out = of_group(out)});
    h.ops.experts_backward_input(
        h.stream,
        {.rows = given, .grad_out = of_group(grad_out), .weight = matrix_of(weight), .grad_x = of_group(grad_x)});
    h.ops.experts_backward_weight(h.stream, {.rows = given,
                                             .grad_out = of_group(grad_out),
                                             .x = of_group(x),
                                             .grad_weight = matrix_of(grad_weight),
                                             .grad_bias = row_of(grad_bias)});
  }
  return {{"out", h.read(out)},
          {"grad_x", h.read(grad_x)},
          {"grad_weight", h.read(grad_weight)},
          {"grad_bias", h.read(grad_bias)}};
}

// Shapes for CUTLASS's kernels and for our own.
TEST(CudaExperts, GroupsOfExpertsChangeNoBit) {
  CudaFixture cuda;
  for (const GroupedCase& c : {GroupedCase{DType::bf16, 72, 200},
                               {DType::bf16, 264, 520},
                               {DType::bf16, 70, 130},
                               {DType::f32, 72, 200},
                               {DType::f32, 33, 65}}) {
    const Values whole = run_in_groups(cuda.harness, c, 8);
    for (const auto& [name, values] : whole) {
      EXPECT_TRUE(std::none_of(values.begin(), values.end(), [](double x) { return std::isnan(x); })) << name;
    }
    for (const int64_t group : {8, 4, 3, 1}) {
      const Values parts = run_in_groups(cuda.harness, c, group);
      for (const auto& [name, values] : whole) {
        EXPECT_TRUE(values == parts.at(name))
            << name << " in groups of " << group << ", " << dtype_name(c.dtype) << " " << c.in << " to " << c.out;
      }
    }
  }
}

TEST(CudaExperts, SortingIsStable) {
  CudaFixture cuda;
  Harness& h = cuda.harness;
  for (const int64_t pairs : {1, 31, 511, 512, 513, 100001, 262144}) {
    for (const int64_t count : {1, 37, 512}) {
      SCOPED_TRACE(std::to_string(pairs) + " pairs of " + std::to_string(count) + " experts");
      std::vector<int32_t> experts(static_cast<size_t>(pairs));
      for (int64_t i = 0; i < pairs; ++i) {
        const double u = random_uniform(3, 1, static_cast<uint64_t>(i));
        experts[static_cast<size_t>(i)] = static_cast<int32_t>(u * u * static_cast<double>(count));
      }
      std::vector<int32_t> order(experts.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return experts[static_cast<size_t>(a)] < experts[static_cast<size_t>(b)];
      });
      std::vector<int32_t> row_of(experts.size()), begin(static_cast<size_t>(count) + 1);
      for (size_t row = 0; row < order.size(); ++row) {
        row_of[static_cast<size_t>(order[row])] = static_cast<int32_t>(row);
        ++begin[static_cast<size_t>(experts[static_cast<size_t>(order[row])]) + 1];
      }
      std::partial_sum(begin.begin(), begin.end(), begin.begin());
      const Buffer experts_d = h.upload(experts), begin_d = h.upload(std::vector<int32_t>(begin.size(), -1)),
                   pair_of_row = h.upload(std::vector<int32_t>(experts.size(), -1)),
                   row_of_pair = h.upload(std::vector<int32_t>(experts.size(), -1));
      h.ops.sort_by_expert(h.stream, {.experts = pointer<int32_t>(experts_d),
                                      .pairs = pairs,
                                      .count = count,
                                      .begin = pointer<int32_t>(begin_d),
                                      .pair_of_row = pointer<int32_t>(pair_of_row),
                                      .row_of_pair = pointer<int32_t>(row_of_pair)});
      EXPECT_TRUE(h.download_as<int32_t>(begin_d, count + 1) == begin);
      EXPECT_TRUE(h.download_as<int32_t>(pair_of_row, pairs) == order);
      EXPECT_TRUE(h.download_as<int32_t>(row_of_pair, pairs) == row_of);
    }
  }
}

TEST(CudaExperts, SlopesOfTheLossThatBalancesAreCountsTimesAFactorRoundedOnce) {
  CudaFixture cuda;
  check_balance_slopes(cuda.harness);
}

TEST(CudaExperts, ARouterOfManyExpertsChoosesTheLargest) {
  CudaFixture cuda;
  Harness& h = cuda.harness;
  constexpr int64_t kTokens = 1001, kChoices = 16;
  for (const int64_t experts : {16, 65, 130, 300, 512, 1024}) {
    SCOPED_TRACE(std::to_string(experts) + " experts");
    std::vector<float> logits(static_cast<size_t>(kTokens * experts));
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(random_below(4, 1, i, 200)) * 0.125f - 12.0f;  // many are equal
    std::vector<int32_t> wanted, order(static_cast<size_t>(experts));
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* row = logits.data() + t * experts;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      wanted.insert(wanted.end(), order.begin(), order.begin() + kChoices);
    }
    const Buffer logits_d = h.upload(logits),
                 chosen = h.upload(std::vector<int32_t>(static_cast<size_t>(kTokens * kChoices), -1)),
                 weights = h.upload(std::vector<float>(static_cast<size_t>(kTokens * kChoices)));
    for (const RouterScore score :
         {RouterScore::softmax_of_chosen, RouterScore::softmax_of_all, RouterScore::sigmoid}) {
      h.ops.route(h.stream, {.logits = matrix(logits_d.data(), DType::f32, kTokens, experts),
                             .score = score,
                             .choices = kChoices,
                             .experts = pointer<int32_t>(chosen),
                             .weights = pointer<float>(weights)});
      EXPECT_TRUE(h.download_as<int32_t>(chosen, kTokens * kChoices) == wanted);
      if (score == RouterScore::softmax_of_all && experts > kChoices) continue;
      const std::vector<float> got = h.download_as<float>(weights, kTokens * kChoices);
      for (int64_t t = 0; t < kTokens; ++t) {
        const auto first = got.begin() + t * kChoices;
        ASSERT_NEAR(std::accumulate(first, first + kChoices, 0.0), 1.0, 1e-5) << "token " << t;
      }
    }
  }
}

}  // namespace
}  // namespace megatrain::testing
