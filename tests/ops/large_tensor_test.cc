// Offsets are 64-bit: tensors with more than 2^31 elements, of which only a few pages are ever touched.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>

#include "tests/ops/cpu_fixture.h"

namespace megatrain::testing {
namespace {

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error("cannot map address space for the test");
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

TEST(LargeTensor, EmbeddingReachesRowsBeyondTwoToThe31Elements) {
  CpuFixture cpu({.threads = 2});
  constexpr int64_t kRows = (int64_t{1} << 20) + 8, kHidden = 2048, kTokens = 5;
  static_assert(kRows * kHidden > int64_t{1} << 31);
  const Mapping table_memory(kRows * kHidden * sizeof(bf16)), grad_memory(kRows * kHidden * sizeof(float));
  const View table = matrix(table_memory.data(), DType::bf16, kRows, kHidden);
  const View grad = matrix(grad_memory.data(), DType::f32, kRows, kHidden);
  const int32_t last = kRows - 1, index[kTokens] = {last, 0, last - 1, last, 7};
  for (int64_t row : {int64_t{last}, int64_t{0}, int64_t{last - 1}, int64_t{7}}) {
    for (int64_t i = 0; i < kHidden; ++i)
      table.as<bf16>()[row * kHidden + i] = to_bf16(static_cast<float>(row % 251 + i % 13));
  }
  std::vector<bf16> out(kTokens * kHidden);
  const View out_view = matrix(out.data(), DType::bf16, kTokens, kHidden);
  cpu.ops->embedding_forward(*cpu.stream, {.table = table, .index = index, .out = out_view});
  const int32_t order[kTokens] = {1, 4, 2, 0, 3}, begin[] = {0, 1, 2, 3, 5}, row[] = {0, 7, last - 1, last};
  cpu.ops->embedding_backward(
      *cpu.stream, {.grad_out = out_view, .order = order, .begin = begin, .row = row, .segments = 4, .grad = grad});
  cpu.stream->synchronize();
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) {
      ASSERT_EQ(to_float(out[t * kHidden + i]), to_float(to_bf16(static_cast<float>(index[t] % 251 + i % 13))))
          << t << " " << i;
    }
  }
  for (int64_t i = 0; i < kHidden; ++i) {
    ASSERT_EQ(grad.as<float>()[last * kHidden + i], 2 * to_float(out[i]));
    ASSERT_EQ(grad.as<float>()[(last - 1) * kHidden + i], to_float(out[2 * kHidden + i]));
  }
}

// Rows 2^30 elements apart: the third begins at element 2^31.
TEST(LargeTensor, StridedRowsBeyondTwoToThe31ElementsAreReadAndWritten) {
  CpuFixture cpu({.threads = 2});
  constexpr int64_t kStride = int64_t{1} << 30, kRows = 4, kCols = 24;
  const Mapping x_memory(((kRows - 1) * kStride + kCols) * sizeof(bf16)),
      y_memory(((kRows - 1) * kStride + kCols) * sizeof(bf16));
  const View x{x_memory.data(), DType::bf16, kRows, kCols, kStride},
      y{y_memory.data(), DType::bf16, kRows, kCols, kStride};
  const auto value = [](int64_t row, int64_t col) { return static_cast<float>(row * 3 + col % 5 - 2); };
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) x.as<bf16>()[row * kStride + col] = to_bf16(value(row, col));
  }
  const auto at = [&](int64_t row, int64_t col) { return to_float(y.as<bf16>()[row * kStride + col]); };

  std::vector<bf16> ones(kCols, to_bf16(1.0f));
  std::vector<float> inv_rms(kRows);
  cpu.ops->rmsnorm_forward(
      *cpu.stream,
      {.x = x, .weight = vector(ones.data(), DType::bf16, kCols), .eps = 0, .out = y, .inv_rms = inv_rms.data()});
  cpu.stream->synchronize();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) ASSERT_NEAR(at(row, col), value(row, col) * inv_rms[row], 1e-2);
  }

  std::vector<bf16> identity(kCols * kCols);
  for (int64_t i = 0; i < kCols; ++i) identity[i * kCols + i] = to_bf16(1.0f);
  cpu.ops->linear_forward(
      *cpu.stream,
      {.x = x, .weight = matrix(identity.data(), DType::bf16, kCols, kCols), .bias = {}, .residual = x, .out = y});
  cpu.stream->synchronize();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) ASSERT_EQ(at(row, col), 2 * value(row, col));
  }
}

}  // namespace
}  // namespace megatrain::testing
