// AdamW over compressed state, compared with a reference that decodes everything, takes the exact step and encodes by
// counting bounds one by one. Covers every format, dense and by rows, and short blocks; every bit must match.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/base/split_master.h"
#include "megatrain/base/stochastic.h"
#include "megatrain/tensor/moment_codes.h"
#include "tests/ops/adamw_hash.h"
#include "tests/ops/harness.h"

namespace megatrain::testing {

enum class MasterKind { split, chance, plain };

struct CodedPlanes {
  MomentFormat moments = MomentFormat::fp32;
  std::vector<uint8_t> m, v;  // contents of the planes
  std::vector<float> m_scales, v_scales, master;
  std::vector<bf16> weight;
  std::vector<uint16_t> low;
  bool operator==(const CodedPlanes&) const = default;
};

struct CodedCase {
  MomentFormat moments;
  MasterKind master;
  int64_t table;  // in rows
  int64_t cols;
  bool block_rows;  // blocks restart with every row
  bool by_rows;     // only some rows have a gradient

  int64_t count() const { return table * cols; }
  int64_t row() const { return block_rows || by_rows ? cols : count(); }
  int64_t row_blocks() const { return ceil_div(row(), kStateBlock); }
  int64_t blocks() const { return count() / row() * row_blocks(); }
  int64_t block_of(int64_t i) const { return i / row() * row_blocks() + i % row() / kStateBlock; }
  CodedState coded(CodedPlanes& p) const {
    return {.moments = moments,
            .m_scales = p.m_scales.empty() ? nullptr : p.m_scales.data(),
            .v_scales = p.v_scales.empty() ? nullptr : p.v_scales.data(),
            .row = row() < count() ? row() : 0,
            .name_hash = 77};
  }
};

inline CodedPlanes zero_planes(Harness& h, const CodedCase& c) {
  const size_t n = static_cast<size_t>(c.count()), bytes = n * static_cast<size_t>(moment_element_bytes(c.moments));
  CodedPlanes p{.moments = c.moments, .m = std::vector<uint8_t>(bytes), .v = std::vector<uint8_t>(bytes)};
  if (c.moments == MomentFormat::int8) {
    p.m_scales.resize(static_cast<size_t>(c.blocks()));
    p.v_scales = p.m_scales;
  }
  const Vector values = h.random(c.count(), DType::f32, 1);
  for (const double value : values) {
    const float x = static_cast<float>(value);
    if (c.master == MasterKind::plain) {
      p.master.push_back(x);
    } else {
      p.weight.push_back(master_high(x));
      if (c.master == MasterKind::split) p.low.push_back(master_low(x));
    }
  }
  return p;
}

// The code of the level nearest to a magnitude, by definition.
inline uint8_t code_by_counting(MomentCode kind, float magnitude, float scale) {
  uint32_t code = 0;
  while (code + 1 < 1u << kind.bits && magnitude > scale * moment_bound(kind, code)) ++code;
  return static_cast<uint8_t>(code);
}

// grad (touched rows, cols); `rows` as in AdamWUpdate.
inline void reference_step(const CodedCase& c, CodedPlanes& p, const AdamWScalars& scalars,
                           const std::vector<float>& grad, const std::vector<int32_t>& rows) {
  const size_t n = static_cast<size_t>(c.count());
  std::vector<float> m(n), v(n), w(n), g(n);
  const auto halves = [](std::vector<uint8_t>& plane) { return reinterpret_cast<uint16_t*>(plane.data()); };
  const auto floats = [](std::vector<uint8_t>& plane) { return reinterpret_cast<float*>(plane.data()); };
  for (size_t i = 0; i < n; ++i) {
    const size_t block = static_cast<size_t>(c.block_of(static_cast<int64_t>(i)));
    if (c.moments == MomentFormat::fp32) {
      m[i] = floats(p.m)[i], v[i] = floats(p.v)[i];
    } else if (c.moments == MomentFormat::bf16) {
      m[i] = to_float(bf16{halves(p.m)[i]}), v[i] = to_float(bf16{halves(p.v)[i]});
    } else {
      const float magnitude = p.m_scales[block] * moment_level(kFirstMomentCode, p.m[i] & 0x7F);
      m[i] = p.m[i] & 0x80 ? -magnitude : magnitude;
      v[i] = p.v_scales[block] * moment_level(kSecondMomentCode, p.v[i]);
    }
    w[i] = c.master == MasterKind::plain   ? p.master[i]
           : c.master == MasterKind::split ? join_master(p.weight[i], p.low[i])
                                           : to_float(p.weight[i]);
    const int64_t row = static_cast<int64_t>(i) / c.cols, column = static_cast<int64_t>(i) % c.cols;
    const auto found = std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(row));
    if (!c.by_rows) {
      g[i] = grad[i];
    } else if (found != rows.end() && *found == row) {
      g[i] = grad[static_cast<size_t>((found - rows.begin()) * c.cols + column)];
    }
    if (c.master != MasterKind::plain) g[i] = to_float(to_bf16(g[i]));
  }
  ASSERT_TRUE(adamw_cpu(
      {.scalars = scalars, .count = c.count(), .grad_f32 = g.data(), .m = m.data(), .v = v.data(), .master = w.data()},
      Simd::scalar));
  const uint64_t key = mix_key(scalars.random, 77);
  const auto chance = [](float x, uint32_t random) {
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + random) >> 16);
  };
  if (c.moments == MomentFormat::int8) {
    std::fill(p.m_scales.begin(), p.m_scales.end(), 0.0f);
    std::fill(p.v_scales.begin(), p.v_scales.end(), 0.0f);
    for (size_t i = 0; i < n; ++i) {
      const size_t block = static_cast<size_t>(c.block_of(static_cast<int64_t>(i)));
      p.m_scales[block] = std::max(p.m_scales[block], std::fabs(m[i]));
      p.v_scales[block] = std::max(p.v_scales[block], v[i]);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t block = static_cast<size_t>(c.block_of(static_cast<int64_t>(i)));
    const uint32_t random = element_bits(key, static_cast<uint32_t>(i));
    if (c.moments == MomentFormat::fp32) {
      floats(p.m)[i] = m[i], floats(p.v)[i] = v[i];
    } else if (c.moments == MomentFormat::bf16) {
      halves(p.m)[i] = chance(m[i], random & 0xFFFF), halves(p.v)[i] = chance(v[i], random >> 16);
    } else {
      const uint8_t code = code_by_counting(kFirstMomentCode, std::fabs(m[i]), p.m_scales[block]);
      p.m[i] = static_cast<uint8_t>(code | (code > 0 && m[i] < 0 ? 0x80 : 0));
      p.v[i] = code_by_counting(kSecondMomentCode, v[i], p.v_scales[block]);
    }
    if (c.master == MasterKind::plain) {
      p.master[i] = w[i];
    } else if (c.master == MasterKind::split) {
      p.weight[i] = master_high(w[i]), p.low[i] = master_low(w[i]);
    } else {
      p.weight[i] = {chance(w[i], element_bits(mix_key(key, 1), static_cast<uint32_t>(i)) & 0xFFFF)};
    }
  }
}

// Runs the op on device copies of the planes; returns the mark that it leaves.
inline int32_t coded_step_on_device(Harness& h, const CodedCase& c, CodedPlanes& p, const AdamWScalars& scalars,
                                    const std::vector<float>& grad, const std::vector<int32_t>& rows) {
  const Buffer m = h.upload(p.m), v = h.upload(p.v), m_scales = h.upload(p.m_scales), v_scales = h.upload(p.v_scales),
               master = h.upload(p.master), weight = h.upload(p.weight), low = h.upload(p.low),
               gradient = h.upload(grad), touched = h.upload(rows), clip = h.upload(std::vector<float>{scalars.clip}),
               flag = h.upload(std::vector<int32_t>{0});
  CodedState coded = c.coded(p);
  if (coded.m_scales) {
    coded.m_scales = pointer<float>(m_scales);
    coded.v_scales = pointer<float>(v_scales);
  }
  h.ops.adamw(h.stream, {.scalars = scalars,
                         .count = c.count(),
                         .grad = pointer<float>(gradient),
                         .m = m.data(),
                         .v = v.data(),
                         .weight = p.weight.empty() ? nullptr : pointer<bf16>(weight),
                         .low = p.low.empty() ? nullptr : pointer<uint16_t>(low),
                         .master = p.master.empty() ? nullptr : pointer<float>(master),
                         .clip = pointer<float>(clip),
                         .not_finite = pointer<int32_t>(flag),
                         .rows = c.by_rows ? pointer<int32_t>(touched) : nullptr,
                         .row_count = static_cast<int64_t>(rows.size()),
                         .cols = c.by_rows ? c.cols : 0,
                         .coded = coded});
  h.fetch(p.m, m);
  h.fetch(p.v, v);
  h.fetch(p.m_scales, m_scales);
  h.fetch(p.v_scales, v_scales);
  h.fetch(p.master, master);
  h.fetch(p.weight, weight);
  h.fetch(p.low, low);
  std::vector<int32_t> mark(1);
  h.fetch(mark, flag);
  return mark[0];
}

inline std::vector<CodedCase> coded_cases() {
  std::vector<CodedCase> cases;
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8}) {
    for (const MasterKind master : {MasterKind::split, MasterKind::chance, MasterKind::plain}) {
      if (moments == MomentFormat::fp32 && master != MasterKind::chance) continue;  // this combination is exact
      cases.push_back({moments, master, 1, 70001, false, false});
      cases.push_back({moments, master, 3, 85, false, false});
      cases.push_back({moments, master, 17, 600, true, false});
      cases.push_back({moments, master, 41, 300, true, true});
      cases.push_back({moments, master, 29, 8, true, true});
    }
  }
  return cases;
}

inline void check_adamw_coded(Harness& h) {
  h.start(53);
  for (const CodedCase& c : coded_cases()) {
    CodedPlanes here = zero_planes(h, c), there = here;
    std::vector<int32_t> rows;
    for (int32_t row = 0; c.by_rows && row < c.table; row += 1 + row % 3) rows.push_back(row);
    for (int64_t step = 1; step <= 4; ++step) {
      AdamWScalars scalars = adamw_hash_scalars(static_cast<int>(step));
      scalars.clip = 0.5f;
      scalars.random = 1000 + static_cast<uint64_t>(step);
      const Vector values = h.random((c.by_rows ? std::ssize(rows) : c.table) * c.cols, DType::f32, 0.01);
      std::vector<float> grad(values.begin(), values.end());
      for (size_t i = 0; i < grad.size(); i += 7) grad[i] *= 1e-4f;  // far below the block's largest
      for (size_t i = 0; i < grad.size(); i += 11) grad[i] = 0;
      constexpr float kSizes[] = {1, 1, 1, 1e-13f, 1e-15f, 1e-27f, 1e-40f};  // down to where moments become 0
      for (size_t i = 0; i < grad.size(); ++i) grad[i] *= kSizes[i / kStateBlock % std::size(kSizes)];
      reference_step(c, here, scalars, grad, rows);
      EXPECT_EQ(coded_step_on_device(h, c, there, scalars, grad, rows), 0);
      ASSERT_TRUE(here == there) << moments_name(c.moments) << " moments, master " << static_cast<int>(c.master) << ", "
                                 << c.table << " x " << c.cols << ", by rows " << c.by_rows << ", step " << step;
    }
    AdamWScalars scalars = adamw_hash_scalars(5);
    std::vector<float> bad(static_cast<size_t>((c.by_rows ? std::ssize(rows) : c.table) * c.cols), 0.01f);
    bad[bad.size() / 2] = INFINITY;
    EXPECT_EQ(coded_step_on_device(h, c, there, scalars, bad, rows), 1) << "what is not finite leaves a mark";
  }
}

}  // namespace megatrain::testing
