#include "megatrain/model/layers/rope_table.h"

#include <algorithm>
#include <cmath>

namespace megatrain {

int64_t rope_rows(const RopeConfig& rope, int64_t positions) {
  return rope.long_above() > 0 && positions > rope.long_above() ? 2 * positions : positions;
}

int64_t rope_floats(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  // cos and sin, half of the elements each
  const int64_t keys = rope_rows(rope, positions) * rope.turning(head_dim);
  return rope.query_growth > 0 ? keys + rope_rows(rope, positions) * head_dim : keys;
}

std::vector<AngleRun> angle_runs(const Documents& documents, int64_t tokens, int64_t long_above) {
  const auto is_long = [&](int64_t length) { return long_above > 0 && length > long_above; };
  if (documents.uniform || !is_long(documents.longest)) return {{0, tokens, is_long(documents.longest)}};
  std::vector<AngleRun> runs;
  for (int64_t d = 0; d < documents.count; ++d) {
    const int64_t begin = documents.host_begin[d], count = documents.host_begin[d + 1] - begin;
    if (runs.empty() || runs.back().in_long != is_long(count)) runs.push_back({begin, 0, is_long(count)});
    runs.back().count += count;
  }
  return runs;
}

std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t head_dim, bool in_long) {
  const int64_t half = rope.turning(head_dim) / 2;
  const double dim = static_cast<double>(2 * half);
  std::vector<double> frequency(static_cast<size_t>(half));
  // yarn's ramp runs between the pairs that make beta_fast and beta_slow full turns within the original context
  const auto turning_pair = [&](double turns) {
    return dim * std::log(rope.original_max_position / (turns * 2 * M_PI)) / (2 * std::log(rope.theta));
  };
  double low = 0, high = 0;
  if (rope.scaling == RopeScaling::yarn) {
    low = turning_pair(rope.beta_fast);
    high = turning_pair(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  for (int64_t i = 0; i < half; ++i) {
    const double base = std::pow(rope.theta, -2.0 * static_cast<double>(i) / dim);
    double f = base;
    switch (rope.scaling) {
      case RopeScaling::none: break;
      case RopeScaling::linear: f = base / rope.factor; break;
      case RopeScaling::llama3: {
        const double wavelength = 2 * M_PI / base;
        const double turns = rope.original_max_position / wavelength;
        if (turns < rope.low_freq_factor) {
          f = base / rope.factor;
        } else if (turns <= rope.high_freq_factor) {
          const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
          f = (1 - smooth) * base / rope.factor + smooth * base;
        }
        break;
      }
      case RopeScaling::yarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        f = base / rope.factor * ramp + base * (1 - ramp);
        break;
      }
      case RopeScaling::longrope:
        f = base / (in_long ? rope.long_factor : rope.short_factor)[static_cast<size_t>(i)];
        break;
      case RopeScaling::proportional:
        f = i < static_cast<int64_t>(rope.proportion * dim / 2) ? base / rope.factor : 0;
        break;
    }
    frequency[static_cast<size_t>(i)] = f;
  }
  return frequency;
}

std::vector<float> make_rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  const size_t half = static_cast<size_t>(rope.turning(head_dim) / 2),
               rest = static_cast<size_t>(head_dim - rope.turning(head_dim)) / 2,
               rows = static_cast<size_t>(rope_rows(rope, positions));
  const auto growth = [&](size_t position) {
    return 1 + rope.query_growth * std::log1p(std::floor(static_cast<double>(position) / rope.original_max_position));
  };
  std::vector<float> table(static_cast<size_t>(rope_floats(rope, head_dim, positions)));
  for (size_t first = 0; first < rows; first += static_cast<size_t>(positions)) {
    const std::vector<double> frequency = rope_frequencies(rope, head_dim, first > 0);
    for (size_t p = 0; p < static_cast<size_t>(positions); ++p) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * frequency[i];
        const double cos = std::cos(angle) * rope.attention_factor, sin = std::sin(angle) * rope.attention_factor;
        const size_t at = (first + p) * half + i, cos_and_sin = 2 * rows * half;
        table[at] = static_cast<float>(cos);
        table[rows * half + at] = static_cast<float>(sin);
        if (rope.query_growth == 0) continue;
        table[cos_and_sin + at] = static_cast<float>(cos * growth(p));
        table[cos_and_sin + rows * half + at] = static_cast<float>(sin * growth(p));
      }
      for (size_t i = 0; rope.query_growth > 0 && i < rest; ++i)
        table[4 * rows * half + (first + p) * rest + i] = static_cast<float>(growth(p));
    }
  }
  return table;
}

}  // namespace megatrain
