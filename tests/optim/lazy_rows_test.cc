#include "megatrain/optim/lazy_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "megatrain/base/rng.h"
#include "megatrain/optim/scalars.h"
#include "megatrain/optim/update_run.h"

namespace megatrain {
namespace {

constexpr int64_t kRows = 200, kCols = 37;

LayerRecord random_table(Device& device, DType dtype) {
  LayerRecord record(device, make_layout({{.name = "table", .rows = kRows, .cols = kCols, .dtype = dtype}}),
                     Tier::host);
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal_pair(3, 1, i)[0];
  record.write_master(record.layout().tensors[0], 0, kRows * kCols, values.data());
  return record;
}

std::vector<float> all_values(const LayerRecord& record) {
  std::vector<float> values(3 * kRows * kCols);
  record.read_master(record.layout().tensors[0], 0, kRows * kCols, values.data());
  record.read_moment(LayerRecord::Moment::first, record.layout().tensors[0], 0, kRows * kCols,
                     values.data() + kRows * kCols);
  record.read_moment(LayerRecord::Moment::second, record.layout().tensors[0], 0, kRows * kCols,
                     values.data() + 2 * kRows * kCols);
  return values;
}

// The rows that a step touches, none to many, with gradients; the learning rate changes from step to step.
struct Step {
  std::vector<int32_t> rows;
  std::vector<float> gradient;
  AdamWScalars scalars;
};
Step some_step(uint64_t t) {
  Step step;
  const uint64_t density = random_below(9, 1, t, 6);  // 0: no rows
  for (int32_t row = 0; row < kRows; ++row) {
    if (random_below(9, 2, t * kRows + static_cast<uint64_t>(row), 20) < density) step.rows.push_back(row);
  }
  for (size_t i = 0; i < step.rows.size() * kCols; ++i) step.gradient.push_back(random_normal_pair(t, 4, i)[0]);
  step.scalars = adamw_scalars({.lr = 1e-2 / static_cast<double>(t),
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .weight_decay = 0.1,
                                .clip_factor = 0.5,
                                .t = static_cast<int64_t>(t)});
  return step;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LazyRows, EndWhereUpdatingEveryRowAtEveryStepEnds) {
  const auto device = make_cpu_device();
  ThreadTeam team(3);
  LayerRecord lazy = random_table(*device, DType::f32), eager = random_table(*device, DType::f32);
  LazyRows rows(lazy.layout(), team);
  for (uint64_t t = 1; t <= 100; ++t) {
    const Step step = some_step(t);
    EXPECT_TRUE(
        rows.update(lazy.planes(), step.scalars, step.rows, reinterpret_cast<const std::byte*>(step.gradient.data())));
    size_t next = 0;
    for (int32_t row = 0; row < kRows; ++row) {
      const bool touched = next < step.rows.size() && step.rows[next] == row;
      const float* gradient = touched ? step.gradient.data() + kCols * static_cast<int64_t>(next++) : nullptr;
      update_run(eager.planes(), eager.layout().tensors[0], step.scalars, reinterpret_cast<const std::byte*>(gradient),
                 row * kCols, kCols);
    }
    if (t % 7 == 0) {  // some rows are read, and must be up to date
      const std::vector<int32_t> wanted = {0, 5, 17, kRows - 1};
      std::vector<float> read(wanted.size() * kCols), expected(kCols);
      EXPECT_TRUE(rows.read(lazy.planes(), wanted, reinterpret_cast<std::byte*>(read.data())));
      for (size_t i = 0; i < wanted.size(); ++i) {
        eager.read_master(eager.layout().tensors[0], wanted[i] * kCols, kCols, expected.data());
        EXPECT_TRUE(same_bits(
            {read.begin() + static_cast<int64_t>(i) * kCols, read.begin() + static_cast<int64_t>(i + 1) * kCols},
            expected));
      }
    }
    if (t == 40) {
      EXPECT_FALSE(same_bits(all_values(lazy), all_values(eager))) << "updates were put off";
    }
    if (t % 40 == 0) {
      EXPECT_TRUE(rows.catch_up(lazy.planes()));
      EXPECT_TRUE(same_bits(all_values(lazy), all_values(eager))) << "after step " << t;
    }
  }
  EXPECT_TRUE(rows.catch_up(lazy.planes()));
  EXPECT_TRUE(same_bits(all_values(lazy), all_values(eager)));
}

TEST(LazyRows, SaysWhenAnUpdateThatWasPutOffIsNotFinite) {
  const auto device = make_cpu_device();
  ThreadTeam team(2);
  LayerRecord record = random_table(*device, DType::bf16);
  const float infinite = INFINITY;
  record.write_master(record.layout().tensors[0], 50 * kCols, 1, &infinite);
  LazyRows rows(record.layout(), team);
  const Step step = some_step(1);
  bool finite = true;
  for (int t = 0; t < 20; ++t) finite &= rows.update(record.planes(), step.scalars, {}, nullptr);
  EXPECT_FALSE(finite) << "every slice has been made up";
}

TEST(LazyRows, SaysWhenAMomentOfARowWithoutAGradientIsInfinite) {
  const auto device = make_cpu_device();
  ThreadTeam team(2);
  const float infinite = INFINITY;
  for (const bool touched : {false, true}) {
    LayerRecord record = random_table(*device, DType::bf16);
    record.write_moment(LayerRecord::Moment::second, record.layout().tensors[0], 50 * kCols + 3, 1, &infinite);
    LazyRows rows(record.layout(), team);
    const Step step = some_step(1);
    const std::vector<bf16> gradient(static_cast<size_t>(kCols), to_bf16(0.1f));
    bool finite =
        rows.update(record.planes(), step.scalars, touched ? std::vector<int32_t>{50} : std::vector<int32_t>{},
                    reinterpret_cast<const std::byte*>(gradient.data()));
    EXPECT_EQ(finite, !touched) << "a touched row is updated at once";
    finite = rows.catch_up(record.planes()) && finite;
    EXPECT_FALSE(finite);
  }
}

}  // namespace
}  // namespace megatrain
