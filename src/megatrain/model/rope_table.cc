#include "megatrain/model/rope_table.h"

#include <cmath>

namespace megatrain {

int64_t rope_rows(const RopeConfig& rope, int64_t positions) {
  return rope.long_above() > 0 && positions > rope.long_above() ? 2 * positions : positions;
}

int64_t rope_floats(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  return rope_rows(rope, positions) * rope.turning(head_dim);  // cos and sin, half of the rotated elements each
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

std::vector<float> make_rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  const size_t half = static_cast<size_t>(rope.turning(head_dim) / 2),
               rows = static_cast<size_t>(rope_rows(rope, positions));
  std::vector<float> table(2 * rows * half);
  for (size_t first = 0; first < rows; first += static_cast<size_t>(positions)) {
    const std::vector<double> frequency = rope_frequencies(rope, head_dim, first > 0);
    for (size_t p = 0; p < static_cast<size_t>(positions); ++p) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * frequency[i];
        table[(first + p) * half + i] = static_cast<float>(std::cos(angle) * rope.attention_factor);
        table[(rows + first + p) * half + i] = static_cast<float>(std::sin(angle) * rope.attention_factor);
      }
    }
  }
  return table;
}

}  // namespace megatrain
